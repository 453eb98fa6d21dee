"""Studies: their specification, training loop, worker processes, results and statistics."""
