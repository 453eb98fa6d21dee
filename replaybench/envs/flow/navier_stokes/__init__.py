"""A Navier–Stokes solver for an ellipse in the wake of a cylinder, with its bodies and engine."""
