"""Drafting behind a cylinder, in a vortex wake."""
