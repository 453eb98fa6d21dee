"""Advice on retention and sampling for a user's plant, after section 9 of de Bruin et al. (2018)."""
