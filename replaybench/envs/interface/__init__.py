"""Interfaces: plant, engine, and the signals between plant and agent."""
