"""One page per algorithm: its settings, what it computes, and its compiled update."""
