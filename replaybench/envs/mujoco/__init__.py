"""Gymnasium's MuJoCo tasks as plants, with an engine that steps all members at once."""
