"""Entry point of the commands `python -m replaybench` and `replaybench`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working folder, in which a file `signal.py` would take the place of the standard library


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
