"""Plants from elsewhere: Python functions, Gymnasium's tasks, users' files."""
