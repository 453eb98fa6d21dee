"""Export a learned policy as a program that runs without this package."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from replaybench.controllers.policies.c_source import c_source
from replaybench.controllers.policies.deployment import Units, cost_of, memory_of
from replaybench.controllers.policies.policy import Policy, load_policy
from replaybench.data.atomic import atomic_path, refuse_existing, write_text
from replaybench.data.errors import UserError
from replaybench.data.numerics import VERSION
from replaybench.envs.interface.checks import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.registry import stored_plant
from replaybench.experiments.exchange.stored_policy import Origin, best_member, origin_of

ExportForm = Literal["c", "torch", "onnx"]
_SUFFIXES: Final[dict[ExportForm, str]] = {"c": ".h", "torch": ".pt2", "onnx": ".onnx"}
_KEYWORDS: Final = {"auto", "break", "case", "char", "const", "default", "do", "double", "float", "int", "long"}


def export_policy(
    path: Path, member: int | None, form: ExportForm | None, output: Path | None, plant: str | None, learner: str | None
) -> None:
    """Write a member's greedy policy as a program, and print its size and cost.

    Raises:
        UserError: the file is no policy, has no such member, or names Python files that the user did not name; a
            library is missing; or the output exists, or has another form's suffix.
    """
    form = form or "c" if output is None else _form_of(output, form)
    if form == "onnx" and importlib.util.find_spec("onnx") is None:
        raise UserError("ONNX models need onnx; pip install 'replaybench[onnx]'")
    target = output or path.with_name(f"{path.stem}{_SUFFIXES[form]}")
    refuse_existing(target)
    name = _identifier(target) if form == "c" else ""
    chosen, why = (member, "as asked") if member is not None else best_member(path)
    policy = load_policy(path, chosen, learner)
    origin = origin_of(path, policy)
    lines = _provenance(origin, policy, chosen)
    made = stored_plant(origin.plant, plant, origin.parameters) if plant or origin.plant else None
    if form == "c":
        source = c_source(policy, name, lines, None if made is None else _units(made, origin.observe))
        write_text(target, source)
    else:
        from replaybench.controllers.policies.exported_program import onnx_model, write_torch_program

        about: dict[str, Any] = {"frequency": policy.facts["policy"]["frequency"]}
        about |= {} if made is None else made.described_signals(origin.observe)
        with atomic_path(target) as temporary:
            if form == "torch":
                write_torch_program(policy, temporary, about)
            else:
                temporary.write_bytes(onnx_model(policy, lines, about).SerializeToString())
    cost, remembered = cost_of(policy.agent.policy_form()), memory_of(policy.agent.policy_form())
    print(f"policy   {target} ({target.stat().st_size / 1e3:.1f} kB), member {chosen} ({why})")
    print(f"rate     {policy.facts['policy']['frequency']:g} Hz")
    if origin.plant and made is None:
        own = shlex.quote(origin.plant)
        print(f"units    not known: its plant is in a Python file; --plant {own} if you trust that file")
    print(f"stored   {cost.parameters:,} numbers, {4 * cost.parameters / 1e3:.1f} kB of constants")
    print(f"a step   {cost.multiply_adds:,} multiply-adds; tanh, divisions and roots: {cost.functions:,}")
    if form == "c":
        memory = f", {4 * remembered:,} bytes of memory kept between steps" if remembered else ""
        print(f"memory   {4 * cost.scratch:,} bytes of stack{memory}, no allocation")
        written = shlex.quote(str(target))
        print(f"try it   cc -std=c99 -D{name.upper()}_MAIN -x c {written} -o {name}_test -lm && ./{name}_test")
    else:
        states, memory = policy.agent.task.observation_size, f", memory [N, {remembered}]" if remembered else ""
        print(f"takes    observation [N, {states}], normalised as the learner's{memory}")
        print(f"gives    action [N, {policy.agent.task.action_size}], of the plant's range as -1 to 1{memory}")


def _form_of(output: Path, asked: ExportForm | None) -> ExportForm:
    forms = {suffix: form for form, suffix in _SUFFIXES.items()}
    form = forms.get(output.suffix.lower())
    if form is None:
        *most, last = forms
        raise UserError(f"--output must end in {', '.join(most)} or {last}, not be {str(output)!r}")
    if asked not in (None, form):
        raise UserError(f"--format {asked} does not end in {output.suffix}, as {output} does; leave one of them out")
    return form


def _identifier(target: Path) -> str:
    name = re.sub(r"\W", "_", target.stem.lower(), flags=re.ASCII).strip("_")
    if not name or name[0].isdigit() or name in _KEYWORDS:
        raise UserError(f"functions in C are called after the file, and {target.stem!r} is no name; choose --output")
    return name


def _provenance(origin: Origin, policy: Policy, member: int) -> list[str]:
    learner = origin.learner or policy.facts["policy"]["learner"]
    lines = [f"A policy for {origin.plant or 'a plant'}, learned by {learner} with replaybench {VERSION}."]
    if origin.strategy:
        seed = f", seed {origin.first_member + member}" if "cell" in policy.facts else ""
        lines += [f"Strategy {origin.strategy}, noise {origin.noise:g}{seed}."]
    if identity := policy.facts.get("id"):
        lines += [f"Cell {identity}."]
    return lines


def _units(made: Plant, observe: Sequence[str]) -> Units:
    rows = seen_states(made.name, made.state_names, observe)
    center, scale, limit = (
        np.array(values, np.float64)[rows] for values in (made.state_center, made.state_scale, made.observation_limit)
    )
    names, units = (tuple(values[row] for row in rows) for values in (made.state_names, made.state_units))
    return Units(
        names, units, center, scale, limit if made.saturates else None, tuple(made.periodic[row] for row in rows),
        made.action_names, made.action_units, *made.action_range(), made.action_choices,
    )  # fmt: skip
