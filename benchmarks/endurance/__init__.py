"""What sweeps endure, and what they cost beside acting and learning: `python -m benchmarks.endurance`."""
