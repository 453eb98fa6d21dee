"""A replay buffer and learners that use the replay strategies in Stable-Baselines3."""
