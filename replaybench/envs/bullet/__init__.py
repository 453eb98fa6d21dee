"""The six Roboschool tasks on PyBullet."""
