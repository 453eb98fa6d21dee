"""Command line: `python -m replaybench` and `replaybench`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C during imports ends it like a later one."""
    try:
        from replaybench.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("replaybench: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
