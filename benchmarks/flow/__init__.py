"""The flow plants: the solver against what is known, what drafting saves, and what carries over between wakes."""
