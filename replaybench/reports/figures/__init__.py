"""Figures of a sweep, drawn with Matplotlib."""
