"""Advice on which replay strategy and buffer capacity to use for a plant."""
