"""Commands about published work: its figures to run again, its claims to judge. Signatures are options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from replaybench.data.bounds import Seconds, Workers
from replaybench.data.errors import UserError
from replaybench.experiments.command_line.options import setting_values
from replaybench.experiments.command_line.running import run_study


def reproduce(
    preset: Positional[str | None] = None,
    list: bool = False,
    time: bool = False,
    scale: Literal["quick", "standard", "paper"] = "standard",
    set: tuple[str, ...] | None = None,
    output: Path | None = None,
    workers: Workers | None = None,
    cluster: str | None = None,
    checkpoint_seconds: Seconds = 60.0,
    dry_run: bool = False,
    no_measure: bool = False,
) -> int:
    """Run a published figure or table as a study, for example debruin2018/fig12.

    Called again, it continues where it stopped. Cells that another figure in a folder beside this one has in common
    with it are taken from there.

    Args:
        preset: Figure or table, as listed by --list.
        list: List all presets with their cells, and what they need on this machine.
        time: With --list: try cells of kinds that were never timed here first, for seconds each (minutes in all).
        scale: How much to run: quick shows that it works, standard decides claims of large effects, paper is what the
            paper ran.
        set: Changed keys of its study, as in --set seeds=8 learner.DDPG.tau=0.005; needs --output.
        output: Run folder; runs/<preset>-<scale> if not given.
        workers: Worker processes; one per core if not given.
        cluster: Address of a Dask scheduler (tcp://host:8786) to run the cells on instead.
        checkpoint_seconds: Least time between the checkpoints of a running cell; changes no numbers.
        dry_run: Print the cells and what they need in time, memory and disk; run nothing.
        no_measure: With --dry-run, do not measure how fast kinds of cells are that are new here (at most 5 s each).
    """
    from replaybench.experiments.command_line.console import make_console
    from replaybench.experiments.presets.preset import read_preset
    from replaybench.experiments.presets.reproduce import announce, folder_of, show_presets, take_over
    from replaybench.experiments.sweep import cores

    console = make_console()
    if list:
        show_presets(console, scale, workers or cores(), time)
        return 0
    if time:
        raise UserError("--time goes with --list; a single preset is timed by --dry-run")
    if preset is None:
        raise UserError("name a figure to reproduce; `replaybench reproduce --list` shows all there are")
    found, changes = read_preset(preset), setting_values(set or ())
    if changes and output is None and not dry_run:
        raise UserError("--set makes another study of the preset; name its run folder with --output")
    study, folder = found.study(scale, changes), output or folder_of(found, scale)
    announce(console, found, scale)
    if set:
        console.print(f"changed: {', '.join(set)}", markup=False, highlight=False)
    if not dry_run and (taken := take_over(study, folder)):
        print(f"{taken} finished cell(s) taken from folders beside {folder}")
    return run_study(console, study, folder, workers, cluster, checkpoint_seconds, dry_run, measure=not no_measure)


def claims(
    runs: Positional[tuple[Path, ...]] = (),
    paper: str | None = None,
    claim: str | None = None,
    output: Path | None = None,
    figure: Path | None = None,
) -> int:
    """Judge published claims by runs: reproduced, contradicted or undecided, with effect, interval and seeds needed.

    Without runs, it lists the claims.

    Args:
        runs: Run folders, of presets or of studies with cells under the same settings.
        paper: Judge the claims of this paper only, for example debruin2018.
        claim: Show this claim only, by its name, which stands in front of each.
        output: File to write the verdicts to as well, as JSON.
        figure: File (.png, .svg or .pdf) to draw effects and verdicts into.
    """
    from replaybench.experiments.claims.show import show_claims
    from replaybench.experiments.command_line.console import make_console

    show_claims(make_console(), runs, () if paper is None else (paper,), output, figure, claim)
    return 0
