"""The twin of the vortex wake: a Navier–Stokes solver."""
