"""Pure kernels with the symbols of the papers: targets, errors, densities and their gradients."""
