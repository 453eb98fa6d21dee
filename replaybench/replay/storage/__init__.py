"""Storage of experiences: columns, units, episodes, traces."""
