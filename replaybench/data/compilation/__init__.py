"""How kernels are compiled and kept: what a cache entry is named by, how it is stored, what calls cost."""
