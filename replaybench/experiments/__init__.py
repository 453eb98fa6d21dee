"""Studies: specification, training loop, workers, sweeps, results, statistics."""
