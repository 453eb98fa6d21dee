"""Learners that act on what they remember of an episode."""
