"""Replay buffers and strategies: columns, orders, retention, sampling, weighting, notation."""
