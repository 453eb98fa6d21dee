"""Code in users' files: classes found there, files beside them, and what all of it is made of."""
