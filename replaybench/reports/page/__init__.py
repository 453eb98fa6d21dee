"""The report of a sweep or of an offline replay as an HTML page."""
