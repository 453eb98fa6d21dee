"""Training on a GPU: one thread block computes one learner, and one CUDA kernel computes plant, replay and updates."""
