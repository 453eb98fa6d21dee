"""Functions that prepare the contents of buffer files and load buffers from them.

A loaded `Replay` draws the same samples as the saved one. A file contains the buffers of several members. Single
members can be loaded. The page docs/reference/buffer-format.md describes the format.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    """Return the metadata that a buffer file stores, so that `load_replay` can rebuild the buffer."""
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
        **({"n_step": replay.n_step, "n_step_discount": replay.discount} if replay.n_step > 1 else {}),
    }


def replay_arrays(replay: Replay) -> dict[str, Any]:
    """Return the arrays of a buffer by name, as a buffer file stores them.

    Some entries are objects that compute their parts while the file is written. These are the numbers of episodes and
    steps, and the keys by which experiences are ranked.
    """
    state = replay.state_dict(lazy=True)
    return {**state, **numbering(state["episode_starts"], state["serial"])}


class RecordArrays(Mapping[str, np.ndarray]):
    """A read-only mapping from names to the arrays of an open file.

    Arrays are read on request and are not cached.

    Args:
        record: The open file.
        prefix: Prefix of the names of the arrays to include. The keys of the mapping omit the prefix.
        members: Indices to read on the first axis of the arrays. None reads all.
    """

    def __init__(self, record: Record, prefix: str = "", members: Sequence[int] | None = None) -> None:
        self.record, self.prefix, self.members = record, prefix, members
        shapes = record.header.shapes
        self.names = [name.removeprefix(prefix) for name in shapes if name.startswith(prefix)]

    def __getitem__(self, name: str) -> np.ndarray:
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
    """Load a replay buffer from a file, so that it draws the same samples as the saved buffer.

    Args:
        path: A buffer file, written by a sweep or from a `Replay`.
        members: Numbers of the members whose buffers are loaded. None loads all members.
        model: Model of plant and policy, which a strategy with `Synth` needs to store further experiences.
        traces: Trace rule of the learner that filled the buffer, if the file contains traces.
        strategy: The file's strategy in its notation. It is required if a class of the strategy is in a user's Python
            file, because opening a file never executes code that it names.

    Raises:
        UserError: The file is missing, damaged or not a buffer file, it lacks a member or the state to continue, its
            traces are not those of `traces`, or `strategy` is required.
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
                facts.n_step,
                facts.n_step_discount,
            )
            replay.load_state_dict(RecordArrays(file.record, members=places))
        except UserError as error:
            raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            raise UserError(f"{path} does not say how to continue its buffer: {error!r}; replay it offline") from None
    return replay
