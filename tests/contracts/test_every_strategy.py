"""The contract of every strategy: all registered retentions × samplings × weightings × entries × units.

A new strategy is found in the registries; only `EXAMPLES` must name what its defaults lack.
"""

import importlib
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from replaybench.evidence.contracts import STRATEGY, Case, Run, difference
from replaybench.replay.buffer import Replay
from replaybench.replay.storage.slots import STEP, episode, segment
from replaybench.replay.strategies.notation import ENTRIES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.runtime.errors import UserError
from tests.helpers.cells import small_cell
from tests.helpers.refusals import refuses
from tests.helpers.tiers import each_once, slow

EXAMPLES = {"Drop": "Drop(0.3)", "Synth": "Synth(state=0.2, action=0.2)", "Mix": "Mix(a.h5)"}
"""Entries that have no default of their own."""
ENTRY_FORMS = ["", *(f"{EXAMPLES.get(name, name)}*" for name in ENTRIES), "Drop(0.2)*Synth(state=0.4, refresh=0.3)*"]
UNITS = (STEP, segment(7), episode(20))
REFUSED = {
    ("Uniform", "IS"),
    ("Annealed", "IS"),
    ("AER", "IS"),
    ("ERE", "IS"),
    ("LAP", "IS"),
    ("PAL", "IS"),
    ("LA3P", "IS"),
}
"""Pairs of sampling and weighting that make no sense."""
CHECKED = (
    "only stored experiences are drawn, and drawing changes nothing",
    "a saved buffer continues with identical draws",
)
COMBINATIONS = [
    f"{retention}[{sampling}{f'+{weighting}' if weighting else ''}]"
    for retention in RETENTIONS
    for sampling in SAMPLINGS
    for weighting in (None, *WEIGHTINGS)
    if (sampling, weighting) not in REFUSED
]
FAST = ["FIFO[PER+IS]", "TDE[Uniform+FIS]", *(f"{kept}[{drawn}]" for kept, drawn in each_once(RETENTIONS, SAMPLINGS))]
every_combination = pytest.mark.parametrize("written", slow(COMBINATIONS, but=FAST))


def check_late_annotation(case: Case) -> None:
    """An annotation that comes an episode late changes nothing but what was drawn and is still there."""
    run = Run(case, (0, 1))
    for _ in run.history(4):
        pass
    replay, members = run.replay, np.arange(2)[:, None]
    batch = run.sample()
    if case.strategy.retention.bounded:
        run.collect()
    before = run.saved()
    replay.annotate(batch, {"td_error": run.random(0, batch.idx.shape[1])})
    touched = np.zeros((2, int(replay.count.max())), np.bool_)
    member, place = np.nonzero(replay.columns.serial[members, batch.idx] == batch.serial)
    touched[member, batch.idx[member, place]] = True
    for name, array in run.saved().items():
        if array.shape[:2] == touched.shape:
            np.testing.assert_array_equal(array[~touched], before[name][~touched], err_msg=name)


@pytest.mark.parametrize("entries", [ENTRY_FORMS[:1], *slow([ENTRY_FORMS[1:]])], ids=["all", "some or altered"])
@every_combination
def test_every_combination_keeps_its_promises(written: str, entries: list[str]) -> None:
    for entry, unit in itertools.product(entries, UNITS):
        if "Mix" in entry and "LA3P" in written:
            refuses("Mix makes no sense with LA3P", parse, entry + written)
            continue
        case = Case(parse(entry + written), unit)
        traces, single = case.strategy.retention.traces, case.strategy.synth or case.strategy.mix
        if (single and (unit.steps > 1 or traces)) or (traces and unit.steps > 1):
            words = "Synth alters single experiences|Mix replays single steps|traces follow single steps"
            refuses(words, Run, case, (0, 1))
        else:
            assert not [wrong for promise in CHECKED if (wrong := STRATEGY[promise](case))], case
            check_late_annotation(case)


@every_combination
def test_refer_changes_nothing_in_the_buffer(written: str) -> None:
    """It goes with every strategy; draws, weights and victims are those without it."""
    without = parse(written)
    for name in REFER:
        strategy = parse(f"{written[:-1]}+{name}]")
        assert strategy == parse(str(strategy)) != without
        assert isinstance(strategy.refer, REFER[name])
    runs = (Run(Case(each), (0, 1)).history(5) for each in (strategy, without))
    for one, other in zip(*runs, strict=True):
        assert not difference(one, other)


@pytest.mark.parametrize("retention", RETENTIONS)
def test_pairs_that_make_no_sense_are_refused_with_the_reason(retention: str) -> None:
    for sampling, weighting in REFUSED:
        with pytest.raises(UserError, match=f"{weighting} makes no sense with {sampling}: .*leave \\+{weighting} out"):
            parse(f"{retention}[{sampling}+{weighting}]")
    for sampling, (one, other) in itertools.product(SAMPLINGS, itertools.permutations(WEIGHTINGS, 2)):
        if (sampling, one) not in REFUSED:
            refuses("name one of them", parse, f"{retention}[{sampling}+{one}+{other}]")


@pytest.mark.parametrize("written", COMBINATIONS)
def test_a_missing_field_is_named(written: str) -> None:
    """A strategy works with nothing stored but rewards, or says what it selects by."""
    strategy = parse(written)
    observes = strategy.sampling.needs_state or strategy.retention.needs_observation
    needed = {"exploration"} & set(strategy.orders) | ({"observation"} if observes else set())
    needed |= {f"the trace '{name}'" for name in strategy.retention.traces}
    if not needed:
        Replay(strategy, {"reward": 1}, 64, 0, range(2), 8)
        return
    words = f"selects by ({'|'.join(needed)}), which (is not among|this learner does not keep)"
    refuses(words, Replay, strategy, {"reward": 1}, 64, 0, range(2), 8)


FOLDER = Path(__file__).parents[2] / "benchmarks/evidence"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script, cut down to four episodes of which every second is watched."""
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("strategy_contract")
    monkeypatch.setattr(module, "EPISODES", 4)
    monkeypatch.setattr(module, "EVERY", 2)
    return module


@pytest.mark.parametrize("strategy", ["FIFO[Uniform]", "FIFO[PER]"])
def test_annotations_are_checked_whether_or_not_the_learner_is_asked(script: Any, strategy: str) -> None:
    small = {"DDPG": {"actor_hidden": (8,), "critic_hidden": (8,)}}
    cell = small_cell(strategies=(strategy,), seeds=1, episodes=4, capacity=500, learner=small)
    assert "| 2 right | bit for bit |" in script.contract(cell)
