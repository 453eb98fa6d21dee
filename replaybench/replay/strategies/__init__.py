"""What is kept and what is replayed: every strategy, and the notation that names them."""
