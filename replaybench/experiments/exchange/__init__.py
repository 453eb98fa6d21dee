"""Recordings in, episodes out: logs and Minari datasets."""
