"""The command line of replaybench."""
