"""Studies on a GPU: one thread block is one member, and one kernel computes plant, replay and updates."""
