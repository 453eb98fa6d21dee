"""Studies: specification, loop, engine, statistics, figures, command line."""
