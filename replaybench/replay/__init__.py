"""Replay buffers, and the strategies that decide what they store, sample and weight."""
