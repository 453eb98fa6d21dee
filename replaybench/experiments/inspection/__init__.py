"""What any file holds: text, tables and pictures of buffers."""
