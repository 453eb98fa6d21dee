"""What plants, strategies and learners promise to the rest, checked on any of them: `replaybench check`."""
