"""The package broken on purpose: `python -m benchmarks.mutants`."""
