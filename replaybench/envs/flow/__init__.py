"""The drafting task, in which an ellipse keeps its place in the vortex wake of a cylinder."""
