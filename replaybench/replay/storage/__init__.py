"""Storage of experiences: arrays, segments and episodes, traces, and the schema of buffer files."""
