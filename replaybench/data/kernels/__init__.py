"""Compiled functions that more than one wing calls."""
