"""Policies without their learners: as files, for NumPy and as modules of PyTorch."""
