"""Policies without their learners, as files, NumPy functions, C source and PyTorch modules."""
