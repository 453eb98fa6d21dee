"""Replay strategies for Stable-Baselines3."""
