"""A file per kind of file: policies, Minari datasets, run folders, and documents in TOML and JSON."""
