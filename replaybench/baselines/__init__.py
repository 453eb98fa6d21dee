"""Solutions to measure against: fuzzy Q-iteration, random, zero, linear-quadratic; normalised scores."""
