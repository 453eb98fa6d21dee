"""Import of logs and datasets, export of datasets and policies, and offline replay of recorded experiences."""
