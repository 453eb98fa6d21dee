"""Exploration: from the action of a policy to the action that is tried."""
