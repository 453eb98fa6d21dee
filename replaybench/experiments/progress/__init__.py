"""What a sweep tells of itself while it runs, and who listens."""
