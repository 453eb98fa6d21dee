"""A study's figures."""
