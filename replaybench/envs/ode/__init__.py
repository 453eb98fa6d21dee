"""Plants that are given by differential equations, and the Runge-Kutta kernels that integrate them."""
