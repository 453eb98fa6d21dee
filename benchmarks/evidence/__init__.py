"""What holds advice, statistics, strategies and offline learning against truth."""
