"""Draw the stored figures of studies anew from their results: python -m benchmarks.evidence.redraw [STUDY …]

Without arguments, all studies under `benchmarks/results`. Figures of policies, which are not stored, stay as they are.
"""

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from replaybench.data.run_folder import RunFolder
from replaybench.experiments.results_file import read_results
from replaybench.reports.figures.all_figures import draw_figures
from replaybench.reports.figures.style import SCREEN

RESULTS = Path(__file__).parents[1] / "results"


def redraw(folder: RunFolder) -> list[Path]:
    """Draw the stored figures of a run folder again, and return their paths.

    They are drawn elsewhere first, because most stored figures lack the mark by which `draw_figures` knows its own.
    """
    names, medium = {path.stem for path in folder.figures.glob("*.png")}, replace(SCREEN, formats=("png",))
    if not names:
        return []
    with tempfile.TemporaryDirectory() as place:
        drawn = draw_figures(read_results(folder.results), folder, (), medium, Path(place), only=names)
        return [Path(shutil.copy(path, folder.figures)) for path in drawn]


def main() -> None:
    for name in sys.argv[1:] or sorted(path.parent.name for path in RESULTS.glob("*/figures")):
        for path in redraw(RunFolder(RESULTS / name)):
            print(path.relative_to(RESULTS), flush=True)


if __name__ == "__main__":
    main()
