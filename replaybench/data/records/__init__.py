"""HDF5 records, sealed by checksums before a library sees them."""
