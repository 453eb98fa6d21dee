"""Progress of running sweeps."""
