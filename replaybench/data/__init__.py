"""File formats: HDF5 records, run folders, policy files, users' logs and Minari datasets."""
