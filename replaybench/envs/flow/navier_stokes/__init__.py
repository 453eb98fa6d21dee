"""A Navier–Stokes solver for the drafting task."""
