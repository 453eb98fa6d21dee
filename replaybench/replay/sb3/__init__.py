"""The strategies inside Stable-Baselines3."""
