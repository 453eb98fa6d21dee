"""The algorithms, each in a module with its settings, policy and compiled update."""
