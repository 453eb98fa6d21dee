"""Contents of files, and composition of buffers."""
