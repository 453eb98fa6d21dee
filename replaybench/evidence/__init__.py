"""Presets of papers, tests of published claims, advice on strategies, and contract checks of users' own classes."""
