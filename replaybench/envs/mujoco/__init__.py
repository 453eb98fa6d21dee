"""Gymnasium's MuJoCo tasks as plants, with a simulator that advances many copies of a task in one call."""
