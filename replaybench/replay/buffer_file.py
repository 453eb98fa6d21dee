"""Write and load buffer files; a loaded `Replay` continues with identical draws.

The format is described in docs/reference/buffer-format.md. Single members can be loaded.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replaybench.data.batch import TraceRule
from replaybench.data.record import Record
from replaybench.replay.buffer import Replay
from replaybench.replay.storage.schema import open_buffer
from replaybench.replay.storage.traces import numbering
from replaybench.replay.strategies.entry import Model
from replaybench.replay.strategies.notation import parse
from replaybench.runtime.errors import UserError
from replaybench.runtime.provenance import available_memory
from replaybench.runtime.quantities import gigabytes
from replaybench.runtime.user_file import imports_only


def replay_facts(replay: Replay) -> dict[str, Any]:
    """Return the facts that `load_replay` needs in addition to the arrays."""
    return {
        "strategy": str(replay.strategy),
        "fields": replay.columns.fields,
        "order": list(replay.columns.fields),
        "unit": {"steps": replay.unit.steps, "episode": replay.unit.episode},
        "capacity": replay.slots * replay.unit.steps,
        "batch_size": replay.batch_size,
        "root_seed": replay.root,
        "members": list(replay.members),
        **({} if replay.traces is None else {"traces": list(replay.traces.rule.names), "window": replay.window}),
    }


def replay_arrays(replay: Replay) -> dict[str, Any]:
    """Return the arrays of a buffer file; derived arrays are computed part by part while they are written."""
    state = replay.state_dict(lazy=True)
    return {**state, **numbering(state["episode_starts"], state["serial"])}


class RecordArrays(Mapping[str, NDArray[Any]]):
    """The arrays of an open record whose names begin with `prefix`, read on request and not cached.

    Args:
        members: indices on the first axis of the arrays; None for all.
    """

    def __init__(self, record: Record, prefix: str = "", members: Sequence[int] | None = None) -> None:
        self.record, self.prefix, self.members = record, prefix, members
        shapes = record.header.shapes
        self.names = [name.removeprefix(prefix) for name in shapes if name.startswith(prefix)]

    def __getitem__(self, name: str) -> NDArray[Any]:
        if self.members is None:
            return self.record.read(self.prefix + name)
        return np.stack([self.record.read(self.prefix + name, member=m) for m in self.members])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def load_replay(
    path: Path | str,
    members: Sequence[int] | None = None,
    model: Model | None = None,
    traces: TraceRule | None = None,
    strategy: str | None = None,
) -> Replay:
    """Load a buffer file as a `Replay` that continues where it was written, with identical draws.

    Args:
        path: a buffer file that `sweep` or `Replay` wrote.
        members: numbers of the members to load; the others are not read. None for all.
        model: plant and policy, which a strategy with `Synth` needs to store more experiences.
        traces: the trace rule of the file's learner, if the file contains traces.
        strategy: the file's strategy; required if its class is in a Python file, because opening a file runs no code.

    Raises:
        UserError: the file is missing, damaged, not a buffer or lacks the state to continue, or its strategy is in a
            Python file and `strategy` is not given.
    """
    path = Path(path)
    with open_buffer(path) as file:
        if file.facts.capacity is None and file.facts.strategy is None:
            raise UserError(f"{path} is a recording, which no learner can continue; replay it offline")
        facts, known = file.facts, list(file.fact("members") or range(file.members))
        wanted = known if members is None else list(members)
        for member in wanted:
            if member not in known:
                raise UserError(f"{path} holds members {', '.join(map(str, known))}, not {member}")
        kept, given = (", ".join(names) for names in (facts.traces, traces.names if traces else ()))
        if kept != given:
            raise UserError(
                f"{path} holds {f'the traces {kept}' if kept else 'no traces'}, not {given or 'none'}: "
                f"give load_replay {'the rule of the learner that made them' if kept else 'no rule'} as traces"
            )
        places = None if members is None else [known.index(member) for member in wanted]
        if not facts.order and facts.unit.steps > 1 and file.record.read("unit_filled").any():
            raise UserError(
                f"{path} was written amid units by a version that did not store their layout; replay it offline"
            )
        capacity = file.fact("capacity")
        if facts.unit.steps != file.steps or capacity // facts.unit.steps < file.slots:
            raise UserError(f"{path}: {capacity} steps in units of {facts.unit.steps} are not its {file.slots} slots")
        needed, free = 4 * len(wanted) * capacity * (sum(facts.fields.values()) + 1), available_memory()
        if needed > free:
            raise UserError(
                f"{path} needs a buffer of {gigabytes(needed)}, but {gigabytes(free)} are free: load fewer members, or "
                "stream it"
            )
        try:
            with imports_only(strategy):
                parsed = parse(file.fact("strategy") if strategy is None else strategy)
            replay = Replay(
                parsed.at(facts.frequency or 50.0),
                {name: facts.fields[name] for name in facts.order or facts.fields},
                capacity,
                file.fact("root_seed"),
                wanted,
                file.fact("batch_size"),
                facts.unit,
                model,
                traces,
                facts.window,
            )
            replay.load_state_dict(RecordArrays(file.record, members=places))
        except UserError as error:
            raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            raise UserError(f"{path} does not say how to continue its buffer: {error!r}; replay it offline") from None
    return replay
