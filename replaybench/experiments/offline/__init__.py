"""Learning from stored buffers, without touching a plant."""
