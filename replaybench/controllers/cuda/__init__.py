"""Updates on a GPU: whole phases in CUDA graphs."""
