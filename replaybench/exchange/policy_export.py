"""Export of stored policies as C source, PyTorch programs and ONNX models."""

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from replaybench.baselines.controllers import run_episode
from replaybench.controllers.policies.c_source import c_source
from replaybench.controllers.policies.policy import Policy, Units, cost_of, load_policy, memory_of
from replaybench.data.policy_file import failed_members, members_in, read_policy
from replaybench.envs.interface.channel_of_plant import describe_channel, describe_spread
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import stored_plant
from replaybench.experiments.statistics import interval
from replaybench.runtime.arrays import Floats, Floats32
from replaybench.runtime.atomic import atomic_path, new_path, write_text
from replaybench.runtime.configuration import Name, build
from replaybench.runtime.errors import UserError, need
from replaybench.runtime.quantities import decimals
from replaybench.runtime.version import VERSION


@dataclasses.dataclass(frozen=True)
class Origin:
    """The conditions under which the policy in a policy file was learned.

    Attributes:
        observe: Names of the observed states; empty if all are observed.
        noise: Standard deviation of the normalised sensor and actuator noise.
        first_member: Seed number of the first of the learners in the file.
    """

    plant: Name = ""
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    observe: tuple[Name, ...] = ()
    learner: Name = ""
    strategy: Name = ""
    noise: float = 0.0
    first_member: int = 0


EPISODES: Final = 32
"""Number of evaluation episodes by which a learner is chosen, and of the other episodes that give its score."""
_SEED: Final = 2**63
"""Root seed of the first of these episodes, which runs do not use unless a study names it."""


def best_member(path: Path, plant: Plant | None, origin: Origin, learner: str | None = None) -> tuple[int, str]:
    """Return the index of the learner with the highest mean score in evaluation episodes, and the reason as text.

    All learners meet the same episodes, with the noise of their training. The text holds the mean score and its 95 %
    interval in as many other episodes, because the highest of several means is too high on average.

    Args:
        plant: The plant on which the learners were trained. If None, the first learner is chosen.
        learner: Name of the learner, which is needed if it is defined in a user's Python file.
    """
    _, weights = read_policy(path)
    count, failed = members_in(path, weights), failed_members(weights)
    if plant is None or len(failed) == count:
        return 0, "the first; without the plant, members cannot be compared"
    policies = {member: load_policy(path, member, learner) for member in range(count) if member not in failed}
    means = {member: float(scores(policy, plant, origin, _SEED).mean()) for member, policy in policies.items()}
    best = max(means, key=lambda member: np.nan_to_num(means[member], nan=-np.inf))
    score = interval(scores(policies[best], plant, origin, _SEED + 1))
    compared = f"the best of {count} in {EPISODES} evaluation episodes; " if count > 1 else ""
    text = score.text(decimals((score.mean, score.low, score.high)))
    return best, f"{compared}{plant.episode_metric} {text} in {EPISODES} {'others' if compared else 'episodes'}"


def scores(policy: Policy, plant: Plant, origin: Origin, seed: int) -> Floats:
    """Return the scores of a greedy policy in `EPISODES` episodes `[EPISODES]`, which depend on the root seed."""
    noise: dict[str, Any] = {"sensor_noise": origin.noise, "actuator_noise": origin.noise, "observe": origin.observe}
    env = PopulationEnv(
        plant, EPISODES, frequency=float(policy.facts["policy"]["frequency"]), seed=seed, role="evaluation",
        nan_actions="fail", **noise,
    )  # fmt: skip
    state = None

    def act(observation: Floats32) -> Floats32:
        nonlocal state
        action, state = policy.predict(observation, state)
        return action

    with contextlib.closing(env):
        return run_episode(act, env)


def origin_of(path: Path) -> Origin:
    """Return the conditions under which the policies in a file were learned, from the metadata of the file."""
    facts, _ = read_policy(path)
    table = facts.get("cell", facts)
    table = table if isinstance(table, dict) else {}
    known = {field.name: table[field.name] for field in dataclasses.fields(Origin) if table.get(field.name) is not None}
    return build(Origin, known, f"the facts of {path}")


ExportForm = Literal["c", "torch", "onnx"]
_SUFFIXES: Final[dict[ExportForm, str]] = {"c": ".h", "torch": ".pt2", "onnx": ".onnx"}
_KEYWORDS: Final = {"auto", "break", "case", "char", "const", "default", "do", "double", "float", "int", "long"}


def export_policy(
    path: Path, member: int | None, form: ExportForm | None, output: Path | None, plant: str | None, learner: str | None
) -> None:
    """Export the greedy policy of one learner, and print the size of the policy and its cost per control step.

    Args:
        member: Index of the learner; None selects that of `best_member`.
        form: C source, PyTorch program or ONNX model. The default follows the suffix of `output`, or is C.
        output: File to write. By default, it has the name of the policy file with the suffix .h, .pt2 or .onnx.
        plant, learner: Names, which are needed if plant or learner are defined in a user's Python file.
    """
    form = form or "c" if output is None else _form_of(output, form)
    if form == "onnx":
        need("onnx", "ONNX models need onnx; pip install 'replaybench[onnx]'")
    target = output or path.with_name(f"{path.stem}{_SUFFIXES[form]}")
    place = new_path(target)
    name = _identifier(target) if form == "c" else ""
    origin = origin_of(path)
    made = stored_plant(origin.plant, plant, origin.parameters) if plant or origin.plant else None
    chosen, why = (member, "as asked") if member is not None else best_member(path, made, origin, learner)
    policy = load_policy(path, chosen, learner)
    lines = _provenance(origin, policy, chosen)
    if made is not None and (words := "; ".join(filter(None, (describe_channel(made), describe_spread(made))))):
        lines += [f"It was learned with: {words}."]
    if form == "c":
        source = c_source(policy, name, lines, None if made is None else _units(made, origin.observe))
        write_text(place, source)
    else:
        from replaybench.controllers.policies.torch_module import onnx_model, write_torch_program

        about: dict[str, Any] = {"frequency": policy.facts["policy"]["frequency"]}
        about |= {} if made is None else made.described_signals(origin.observe)
        if made is not None and made.channel.history:
            about["past_actions"] = made.channel.history  # they follow the states, the newest first
        with atomic_path(place) as temporary:
            if form == "torch":
                write_torch_program(policy, temporary, about)
            else:
                temporary.write_bytes(onnx_model(policy, lines, about).SerializeToString())
    cost, remembered = cost_of(policy.agent.policy_head()), memory_of(policy.agent.policy_head())
    print(f"policy   {target} ({place.stat().st_size / 1e3:.1f} kB), member {chosen} ({why})")
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
        raise UserError(f"C functions take the name of the file; {target.stem!r} is no name; choose --output")
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


def _units(plant: Plant, observe: Sequence[str]) -> Units:
    rows = seen_states(plant.name, plant.state_names, observe)
    columns = plant.state_center, plant.state_scale, plant.observation_limit
    center, scale, limit = np.array(columns, np.float64)[:, rows]
    names, units = (tuple(values[row] for row in rows) for values in (plant.state_names, plant.state_units))
    return Units(
        names, units, center, scale, limit if plant.saturates else None, tuple(plant.periodic[row] for row in rows),
        plant.action_names, plant.action_units, *plant.action_range(), plant.action_choices,
        plant.normalise_action(plant.zero_action), plant.channel.history,
    )  # fmt: skip
