"""Retention, sampling and weighting strategies, and the text notation that names them."""
