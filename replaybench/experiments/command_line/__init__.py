"""The commands, each a function whose signature is its options."""
