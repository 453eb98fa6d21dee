"""Figures, the report page, inspection of files, films, and the live view of a sweep."""
