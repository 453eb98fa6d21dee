"""Data structures that order buffer slots by rank, by cumulative priority or by age."""
