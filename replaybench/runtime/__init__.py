"""Kernels and their cache, random streams, errors, settings, registries, users' files."""
