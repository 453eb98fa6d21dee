"""How fast: timings beside the hardest peers, each a script that `make bench` runs, and what bounds them."""
