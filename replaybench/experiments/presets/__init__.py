"""Published figures and tables as studies that run by their names."""
