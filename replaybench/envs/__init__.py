"""Plants as populations: Numba RK4 kernels behind a Gymnasium vector environment."""
