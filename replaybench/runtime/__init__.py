"""Kernels and their cache, random streams, errors, settings, registries of classes, and users' Python files."""
