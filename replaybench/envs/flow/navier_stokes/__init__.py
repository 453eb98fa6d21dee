"""A Navier–Stokes solver for the drafting task, with its bodies and engine."""
