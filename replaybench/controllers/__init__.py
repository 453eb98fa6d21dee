"""Learners as populations: every weight has a leading member axis."""
