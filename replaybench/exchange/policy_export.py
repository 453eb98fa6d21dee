"""Export of stored policies as C source, PyTorch programs and ONNX models."""

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from replaybench.baselines.controllers import Controller, run_episode
from replaybench.baselines.rivals import Rivals, controller
from replaybench.controllers.policies.c_header import Recorded, Units, c_header
from replaybench.controllers.policies.c_source import c_source
from replaybench.controllers.policies.policy import Policy, cost_of, load_policy, memory_of
from replaybench.data.policy_file import failed_members, members_in, read_policy
from replaybench.envs.interface.channel_of_plant import describe_channel, describe_spread
from replaybench.envs.interface.declarations import seen_states
from replaybench.envs.interface.plant import Plant
from replaybench.envs.ode.plant import with_equations
from replaybench.envs.population import PopulationEnv
from replaybench.envs.registry import stored_plant, untrusted
from replaybench.exchange.rival_c import check_rival, rival_law
from replaybench.experiments.cell_lookup import find_condition
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
    with contextlib.closing(env):
        return run_episode(_greedy(policy), env)


def _greedy(policy: Policy) -> Controller:
    """Return a policy as a controller for one episode."""
    state = None

    def act(observation: Floats32) -> Floats32:
        nonlocal state
        action, state = policy.predict(observation, state)
        return action

    return act


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
) -> list[str]:
    """Export the greedy policy of one learner, and return lines about its size and its cost per control step.

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
    if made is None and origin.plant and member is None:
        raise UserError(f"{untrusted(origin.plant)}; --member 0 exports the first member, without units")
    chosen, why = (member, "as asked") if member is not None else best_member(path, made, origin, learner)
    policy = load_policy(path, chosen, learner)
    lines = _provenance(origin, policy, chosen)
    if made is not None and (words := "; ".join(filter(None, (describe_channel(made), describe_spread(made))))):
        lines += [f"It was learned with: {words}."]
    if form == "c":
        units = recorded = None
        if made is not None:
            units = units_of(made, origin.observe)
            recorded = record_episode(
                _greedy(policy), made, float(policy.facts["policy"]["frequency"]), origin.observe, units
            )
        write_text(place, c_source(policy, name, lines, units, recorded))
    else:
        from replaybench.controllers.policies.torch_module import onnx_model, write_torch_program

        about: dict[str, Any] = {"frequency": policy.facts["policy"]["frequency"]}
        past = 0
        if made is not None:
            about |= made.described_signals(origin.observe) | {"delay": made.channel.delay}
            about |= {} if made.channel.is_off else {"channel": made.channel.settings()}
            if steps := made.channel.history:  # values of the input `history` at the start of an episode
                about["history"] = made.normalise_action(made.zero_action).tolist() * steps
                past = len(about["history"])
        with atomic_path(place) as temporary:
            if form == "torch":
                write_torch_program(policy, temporary, about, past)
            else:
                temporary.write_bytes(onnx_model(policy, lines, about, past).SerializeToString())
    cost, remembered = cost_of(policy.agent.policy_head()), memory_of(policy.agent.policy_head())
    printed = [f"policy   {target} ({place.stat().st_size / 1e3:.1f} kB), member {chosen} ({why})"]
    printed += [f"rate     {policy.facts['policy']['frequency']:g} Hz"]
    if origin.plant and made is None:
        own = shlex.quote(origin.plant)
        printed += [f"units    not known: its plant is in a Python file; --plant {own} if you trust that file"]
    printed += [f"stored   {cost.parameters:,} numbers, {4 * cost.parameters / 1e3:.1f} kB of constants"]
    printed += [f"a step   {cost.multiply_adds:,} multiply-adds; tanh, divisions and roots: {cost.functions:,}"]
    if form == "c":
        memory = f", {4 * remembered:,} bytes of memory kept between steps" if remembered else ""
        return [*printed, f"memory   {4 * cost.scratch:,} bytes of stack{memory}, no allocation", _test(target, name)]
    kept = f", history [N, {past}]" * (past > 0) + f", memory [N, {remembered}]" * (remembered > 0)
    seen = policy.agent.task.observation_size - past
    printed += [f"takes    observation [N, {seen}], normalised as the learner's{kept}"]
    return [*printed, f"gives    action [N, {policy.agent.task.action_size}], of the plant's range as -1 to 1{kept}"]


def export_rival(run: Path, name: str, output: Path | None, plant: str | None, **chosen: float | None) -> list[str]:
    """Export a tuned PID or an LQI controller of a run folder's plant as C, and return lines that describe it.

    Args:
        run: Run folder.
        name: PID or LQI.
        output: File to write; by default, the name of the rival with the suffix .h in the run folder.
        plant: Name of the plant, which is needed if there are several or if it is defined in a user's Python file.
        chosen: Noise and frequency that select a condition of the run folder.
    """
    if not run.is_dir():
        raise UserError(f"{run} is no run folder, in which learners have rivals; leave --rival out")
    cell = find_condition(run, plant=plant, **chosen)
    target = output or run / f"{name.lower()}.h"
    if _form_of(target, None) != "c":
        raise UserError(f"rivals are exported as C; --output must end in .h, not be {str(target)!r}")
    place, identifier = new_path(target), _identifier(target)
    made = stored_plant(cell.plant, plant, cell.parameters)
    if made is None:
        raise untrusted(cell.plant)
    ode, units = with_equations(made, name), units_of(made, ())._replace(history=0)  # rivals use no past commands
    check_rival(ode, name)
    rival = Rivals().score(ode, cell.frequency, cell.noise, name)
    assert rival is not None
    law = rival_law(ode, cell.frequency, name, rival)
    act = controller(ode, cell.frequency, name, rival, [0])
    lines = [f"{name} control of {cell.plant}, by replaybench {VERSION}.", *[f"{rival.note}."] * bool(rival.note)]
    if channel := describe_channel(made):
        lines += [f"Channel: {channel}."]
    write_text(place, c_header(law, identifier, lines, units, record_episode(act, ode, cell.frequency, (), units)))
    return [
        f"rival    {target} ({place.stat().st_size / 1e3:.1f} kB), {name}; {ode.episode_metric} {rival.score:.4g}",
        "gains    " + (rival.note or "from the plant's equations"),
        f"rate     {cell.frequency:g} Hz, noise {cell.noise:g}",
        _test(target, identifier),
    ]


def _test(target: Path, name: str) -> str:
    written = shlex.quote(str(target))
    return f"try it   cc -std=c99 -D{name.upper()}_MAIN -x c {written} -o {name}_test -lm && ./{name}_test"


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


def units_of(plant: Plant, observe: Sequence[str]) -> Units:
    """Return the signals of a plant and its channel, of which a controller observes the states named in `observe`."""
    observed, channel = seen_states(plant.name, plant.state_names, observe), plant.channel
    places = {
        velocity: plant.state_names.index(name) for velocity, name in plant.positions_of(channel.differentiate).items()
    }
    computed = {row: places[plant.state_names[row]] for row in observed if plant.state_names[row] in places}
    rows = sorted({*observed, *computed.values()})
    columns = plant.state_center, plant.state_scale, plant.observation_limit
    center, scale, limit = np.array(columns, np.float64)[:, rows]
    names, units = (tuple(values[row] for row in rows) for values in (plant.state_names, plant.state_units))
    steps = [channel.resolution.get(name, 0.0) for name in names]
    return Units(
        names, units, center, scale, limit if plant.saturates else None, tuple(plant.periodic[row] for row in rows),
        plant.action_names, plant.action_units, *plant.action_range(), plant.action_choices,
        plant.normalise_action(plant.zero_action), channel.history, channel.delay,
        resolution=np.array(steps) if any(steps) else None,
        positions=tuple(rows.index(computed[row]) if row in computed else -1 for row in rows) if computed else (),
        observed=tuple(rows.index(row) for row in observed) if computed else (),
    )  # fmt: skip


STEPS: Final = 64
"""Number of control steps of an episode that the self-test of a C header contains."""


def record_episode(act: Controller, plant: Plant, frequency: float, observe: Sequence[str], units: Units) -> Recorded:
    """Return the measured states and the commands in the first `STEPS` control steps of an episode without noise."""
    given, due = list[Floats](), list[Floats]()
    env = PopulationEnv(
        plant, 1, frequency=frequency, seed=_SEED, role="evaluation", observe=observe, nan_actions="fail"
    )
    rows = [plant.state_names.index(units.state_names[i]) for i in units.measured]
    with contextlib.closing(env):
        observation, _ = env.reset()
        ended = False
        while not ended and len(due) < STEPS:
            measured = env.get_state()["observed"][0, rows]
            if not np.isfinite(measured).all():
                break
            given.append(measured)
            action = act(observation)
            due.append(plant.denormalise_action(action[0]))
            observation, _, terminated, truncated, _ = env.step(action)
            ended = bool(terminated[0] or truncated[0])
    late = [max(0, step - plant.channel.sensor_periods(env.dt)) for step in range(len(given))]
    return Recorded(np.array(given)[late], np.array(due))
