"""Plants given by differential equations, and the Runge-Kutta kernels that step them."""
