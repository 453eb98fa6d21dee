"""What is written down: member random streams, files, run records, user logs. Knows no plant and no learner."""
