"""Reference controllers and scores: fuzzy Q-iteration, linear-quadratic, random and zero control."""
