"""Interfaces of plants and of engines, and the signals between plant and agent."""
