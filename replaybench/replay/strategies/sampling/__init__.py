"""What is replayed."""
