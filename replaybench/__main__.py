"""`python -m replaybench` is the command line, and so is the command `replaybench`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it as one later does."""
    try:
        from replaybench.experiments.cli import main as run

        run()
    except KeyboardInterrupt:
        print("replaybench: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
