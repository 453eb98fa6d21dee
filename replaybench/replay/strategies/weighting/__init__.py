"""How what is replayed is weighted."""
