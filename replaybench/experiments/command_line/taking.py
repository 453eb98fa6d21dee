"""Commands that take things along: their signatures are their options, and heavy libraries are imported inside."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from replaybench.data.bounds import Hertz, Noise, Whole


def examples(folder: Positional[Path] = Path("examples")) -> int:
    """Copy the examples that come with replaybench: plants, a strategy, a learner, a rig's log, scripts.

    Args:
        folder: New folder to copy them into.
    """
    from replaybench.experiments.training.bundled import copy_examples

    for path in copy_examples(folder):
        print(path)
    return 0


def export_policy(
    policy: Positional[Path],
    format: Literal["c", "torch", "onnx"] | None = None,
    member: Whole | None = None,
    output: Path | None = None,
    plant: str | None = None,
    learner: str | None = None,
    strategy: str | None = None,
    noise: Noise | None = None,
    frequency: Hertz | None = None,
    seed: Whole | None = None,
) -> int:
    """Write a learned policy for where replaybench is not: C for a microcontroller, PyTorch, ONNX.

    Args:
        policy: Policy file (.safetensors) of a cell or of `replay`; or run folder, of which options choose a cell.
        format: C99 header without allocation, that tests itself; program of torch.export (.pt2); ONNX model. What the
            suffix of --output says, else C, if not given.
        member: Member whose policy to write, from 0; the one that did best in its last greedy episode if not given.
        output: File to write; policy.h, .pt2 or .onnx beside the policy file if not given. C is named after it.
        plant: The policy's plant; needed for a file only where it is one of your own (path/to/file.py:ClassName).
        learner: The policy's learner; needed for a file only where it is one of your own (path/to/file.py:ClassName).
        strategy: Strategy of the cell of a run folder.
        noise: Its noise.
        frequency: Its control rate in Hz.
        seed: Its seed: its policy is the one to write.
    """
    from replaybench.experiments.exchange.policy_export import export_policy
    from replaybench.experiments.inspection.finding import find_policy

    named = learner if policy.is_dir() else None  # of a file it is no choice, but trust in a file of one's own
    chosen, place = find_policy(
        policy, member, plant=plant, learner=named, strategy=strategy, noise=noise, frequency=frequency, seed=seed
    )
    export_policy(chosen, place, format, output, plant, learner)
    return 0
