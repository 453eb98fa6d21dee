"""Maps: how strategies compare under many conditions at once, in coloured squares."""
