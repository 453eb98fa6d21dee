"""Locomotion beside peers: their runs, and the figures of both."""
