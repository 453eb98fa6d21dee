"""The hardest peers, each a process of its own that takes turns with replaybench: RLtools with MKL, and plain JAX."""
