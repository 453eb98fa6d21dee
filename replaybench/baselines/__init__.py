"""Reference controllers and normalised scores: fuzzy Q-iteration, linear-quadratic, random and zero control."""
