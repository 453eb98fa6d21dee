"""The six Roboschool tasks on PyBullet, with their engine."""
