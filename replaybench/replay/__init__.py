"""What is kept and what is replayed: columns, orders, retention, sampling, notation."""
