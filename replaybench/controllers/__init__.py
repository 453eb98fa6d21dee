"""Learners, each of which trains several independent members together."""
