"""Draw the stored figures of studies anew from their results: python benchmarks/evidence/redraw.py [STUDY …]

Without arguments, all studies under `benchmarks/results`. Figures of policies, which are not stored, stay as they are.
"""

import sys
from dataclasses import replace
from pathlib import Path

from replaybench.data.run_folder import RunFolder
from replaybench.experiments.results_file import read_results
from replaybench.reports.figures.all_figures import draw_figures
from replaybench.reports.figures.style import SCREEN

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    for name in sys.argv[1:] or sorted(path.parent.name for path in RESULTS.glob("*/figures")):
        folder = RunFolder(RESULTS / name)
        names = {path.stem for path in folder.figures.glob("*.png")}
        for path in draw_figures(
            read_results(folder.results), folder, (), replace(SCREEN, formats=("png",)), only=names
        ):
            print(path.relative_to(RESULTS), flush=True)


if __name__ == "__main__":
    main()
