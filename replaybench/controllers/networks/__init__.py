"""Populations of networks, forward and backward, and what optimises them."""
