"""Compiled targets, errors, densities and gradients, with the symbols of the papers."""
