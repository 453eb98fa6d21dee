"""Measurements beside peers, and what writes them into documents.

A regular package, which stands before others of this name: PyArrow 17 installs one.
"""
