"""Presets of papers, published claims, advice, and contract checks."""
