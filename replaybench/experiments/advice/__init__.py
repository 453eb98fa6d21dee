"""Advice on what to keep and replay, on a user's own plant: section 9 of de Bruin et al. (2018) as a procedure."""
