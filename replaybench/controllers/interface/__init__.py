"""The agent interface, exploration, and recurrent state."""
