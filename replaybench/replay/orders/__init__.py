"""Slots in order: of rank, of priority sums, of age."""
