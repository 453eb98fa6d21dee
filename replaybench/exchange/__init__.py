"""Exchange with other programs: logs and datasets, exported policies, offline replay."""
