"""Readers of logs that users bring: CSV, NPZ, MATLAB and Parquet."""
