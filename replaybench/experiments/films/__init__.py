"""Plants as moving pictures: in files, or in a window."""
