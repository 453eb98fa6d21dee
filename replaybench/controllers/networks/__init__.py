"""Networks of several members, with forward pass, backward pass and optimiser."""
