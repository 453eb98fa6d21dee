"""What a plant is, what moves it, and what passes between it and an agent."""
