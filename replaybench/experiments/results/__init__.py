"""A study's dataset, scores and tables."""
