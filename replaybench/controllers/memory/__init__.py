"""Recurrent policies."""
