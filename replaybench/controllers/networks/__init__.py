"""Populations of networks: forward and backward passes, and Adam."""
