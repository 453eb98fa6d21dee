"""What enters a buffer."""
