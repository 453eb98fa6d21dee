"""From a study to cells, and from a cell to its files: the loop where plants, learners and replay meet."""
