"""Gymnasium's MuJoCo tasks, stepped for all members at once."""
