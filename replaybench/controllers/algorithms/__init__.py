"""One module per algorithm: settings, policy and compiled update."""
