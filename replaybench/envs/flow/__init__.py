"""The drafting task: an ellipse has to keep its place in the vortex wake of a cylinder."""
