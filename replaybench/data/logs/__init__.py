"""Readers of users' logs: text, NPZ, MATLAB and Parquet files, and Minari datasets."""
