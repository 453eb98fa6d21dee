"""Orders of slots: by rank, by cumulative priority, by age."""
