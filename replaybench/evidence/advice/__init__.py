"""Advice on retention and sampling for a plant."""
