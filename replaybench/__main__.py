"""`python -m replaybench` is the command line."""

from replaybench.experiments.cli import main

if __name__ == "__main__":
    main()
