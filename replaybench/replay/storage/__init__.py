"""What is stored: columns, units, episodes, traces."""
