"""Entry point of the commands `python -m replaybench` and `replaybench`."""

import sys


def main() -> None:
    """Run the command line, and exit with status 130 after Ctrl-C, also while modules are imported."""
    try:
        from replaybench.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("replaybench: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
