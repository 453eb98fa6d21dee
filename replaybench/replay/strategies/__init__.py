"""Retention, sampling and weighting strategies, and the notation that names them."""
