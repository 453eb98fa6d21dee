"""ACER's tasks on dm_control."""
