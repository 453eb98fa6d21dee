"""Plants whose simulator is a Python function that advances one copy of the plant.

Nothing is compiled. For plants with differential equations, `replaybench.envs.ode.plant` is far faster.
"""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Final

import numpy as np
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numpy.typing import ArrayLike, NDArray

from replaybench.envs.interface.declarations import check_tuple
from replaybench.envs.interface.engine import Engine
from replaybench.envs.interface.plant import Plant, Vector
from replaybench.envs.ode import rk4
from replaybench.envs.ode.plant import OdePlant, try_functions
from replaybench.runtime.errors import UserError
from replaybench.runtime.function_hash import content_hash
from replaybench.runtime.source_hash import in_no_file, made_of, of_a_package
from replaybench.runtime.streams import Stream
from replaybench.runtime.user_file import FAILURES, reason


@dataclass(frozen=True, kw_only=True)
class PythonPlant(Plant):
    """The base class of plants with a method `step` in Python.

    A subclass is a frozen dataclass of parameters. It also declares `initial_state` in physical units. `step` must
    depend on its arguments and on the parameters only, without randomness.
    """

    initial_state: ClassVar[tuple[float, ...]]

    reference_episodes: ClassVar[int] = 10
    saturates: ClassVar[bool] = False

    def step(self, x: Vector, u: Vector, dt: float) -> tuple[ArrayLike, float, bool]:
        """Advance one copy of the plant by one control step.

        Args:
            x: Copy of the state in physical units, float64 `[S]`.
            u: Copy of the applied action in physical units, float64 `[A]`. The action is held during the step.
            dt: Length of the control step [s].

        Returns:
            state: Next state in physical units `[S]`.
            reward: Reward of the step.
            terminated: Whether the next state is terminal.
        """
        raise NotImplementedError

    def start(self, uniform: Vector) -> ArrayLike:
        """Return the physical state `[S]` in which an episode begins, by default `initial_state`.

        Args:
            uniform: Random numbers for this episode, uniform in [0, 1), float64 `[S]`.
        """
        return self.initial_state

    def engine(self, num_envs: int, frequency: float) -> Engine:
        return OneByOne(self, num_envs, frequency)

    def made_of(self) -> str:
        """Return a description of the content of the plant's file, and of the files that it imports.

        Raises:
            UserError: The plant is defined in no file, and its functions refer to an object of unknown content.
        """
        content = f"saturates: {self.saturates}; {made_of(type(self))}"
        for part in in_no_file(type(self)):
            own = {name: value for name, value in sorted(vars(part).items()) if not name.startswith("__")}
            plain = [(name, value) for name, value in own.items() if isinstance(value, int | float | str | tuple)]
            functions = [value for value in own.values() if isinstance(value, FunctionType)]
            try:
                content += f"; {plain} {content_hash(functions)}"
            except UserError as error:
                raise UserError(f"plant {self.name}: {error}; or save the plant in a file") from error
        return content

    @classmethod
    def _declared(cls) -> tuple[str, ...]:
        return (*super()._declared(), "initial_state")

    def _check_declarations(self) -> None:
        super()._check_declarations()
        plant = type(self).__name__
        check_tuple(self, "initial_state", "state_names")
        if type(self).step is PythonPlant.step:
            raise UserError(f"plant {plant} does not define the method step")


class OneByOne(Engine):
    """The engine of a `PythonPlant`. It advances the members one after the other."""

    def __init__(self, plant: PythonPlant, num_envs: int, frequency: float) -> None:
        super().__init__(num_envs, len(plant.state_names), frequency)
        self._plant = plant

    def restart(self, chosen: NDArray[np.bool_], draws: Stream) -> None:
        uniform = draws.uniform(self.observed.shape[1], chosen)
        for row, m in enumerate(np.flatnonzero(chosen)):
            self.observed[m] = started(self._plant, uniform[row])

    def advance(self, action: NDArray[np.float64], running: NDArray[np.bool_]) -> None:
        for m in np.flatnonzero(running):
            step = stepped(self._plant, self.observed[m], action[m], 1.0 / self.frequency)
            self.observed[m], self.reward[m], self.terminated[m] = step


def started(plant: PythonPlant, uniform: Vector) -> Vector:
    """Return the state `[S]` from the method `start` of a plant, or raise a `UserError` with file and line."""
    try:
        x = np.asarray(plant.start(uniform.copy()), np.float64)
    except FAILURES as error:
        raise _failed(plant, "start", error) from error
    return _checked(plant, "start", x)


def stepped(plant: PythonPlant, x: Vector, u: Vector, dt: float) -> tuple[Vector, float, bool]:
    """Return the results of the method `step` of a plant, or raise a `UserError` with file and line."""
    try:
        after, reward, terminated = plant.step(x.copy(), u.copy(), dt)
        after, reward, terminated = np.asarray(after, np.float64), float(reward), bool(terminated)
    except FAILURES as error:
        raise _failed(plant, f"step from x = {x.tolist()} under u = {u.tolist()}", error) from error
    return _checked(plant, "step", after), reward, terminated


def _checked(plant: PythonPlant, method: str, x: Vector) -> Vector:
    if x.shape != (len(plant.state_names),):
        raise UserError(
            f"plant {plant.name}: {method} returns a state of shape {x.shape}; state_names has {len(plant.state_names)}"
        )
    return x


def _failed(plant: PythonPlant, what: str, error: BaseException) -> UserError:
    try:
        path = Path(inspect.getfile(type(plant)))
    except (OSError, TypeError):  # in a notebook
        path = Path("its definition")
    return UserError(f"plant {plant.name}: {what} fails: {path.name}, {reason(error, path)}")


_REFUSED: Final = (NumbaError, UnsupportedBytecodeError)


def try_out(plant: Plant, name: str) -> None:
    """Call the functions of a user's plant once as plain Python, and then compile its differential equations.

    The functions get the initial state and the action in the middle of its range.

    Raises:
        UserError: A function fails, returns a wrong value, or cannot be compiled.
    """
    if isinstance(plant, PythonPlant):
        x = started(plant, np.full(len(plant.state_names), 0.5))
        after, reward, _ = stepped(plant, x, plant.action_range()[0], 1.0 / plant.frequency)
        if not np.isfinite([*after, reward]).all():
            raise UserError(
                f"plant {plant.name}: step returns a state or reward that is not finite at the initial state"
            )
    if not isinstance(plant, OdePlant):
        return
    path = Path(name.rpartition(":")[0])
    try:
        wrong = try_functions(plant)
    except _REFUSED as error:  # the plant's functions may call compiled functions
        raise UserError(f"plant {name}: {_refused(plant, path, error)}") from error
    except Exception as error:
        raise UserError(f"plant {name} fails at its initial state: {reason(error, path)}") from error
    if wrong:
        raise UserError(f"plant {name}: {wrong}")
    try:
        rk4.simulate(plant, plant.initial_state, plant.action_range()[0], plant.max_substep)
    except _REFUSED as error:
        raise UserError(f"plant {name}: {_refused(plant, path, error)}") from error


def _refused(plant: OdePlant, path: Path, error: Exception) -> str:
    """Return a message that names the function that Numba does not compile, its line and the reason."""
    x, u, p = np.array(plant.initial_state, np.float64), np.array(plant.action_range()[0]), plant.params()
    given: tuple[tuple[Any, ...], ...] = (x, u, p), (x, u, x, 0, p), (x.copy(), p), (x, 0, p)
    for function, arguments in zip(rk4.FUNCTIONS, given, strict=True):
        try:
            getattr(plant, function)(*arguments)
        except _REFUSED as own:
            if helper := _not_compiled(getattr(plant, function).py_func, str(own)):
                return f"{_line(own, path)}{function} needs {helper}"
            return f"Numba, which compiles {function}, does not know this Python: {_message(own, path)}"
    return f"Numba does not compile its functions: {_message(error, path)}"


def _not_compiled(function: FunctionType, message: str) -> str:
    """Describe the uncompiled function or class in Numba's `message`, with a remedy, or return an empty text."""
    waiting, seen = [function], {function}
    while waiting:
        reached = inspect.getclosurevars(waiting.pop())
        values = {**reached.nonlocals, **reached.globals}
        for module in [each for each in values.values() if isinstance(each, ModuleType)]:
            values |= {name: getattr(module, name) for name in reached.unbound if hasattr(module, name)}
        for name, value in values.items():
            compiled = getattr(value, "py_func", None)
            if isinstance(compiled, FunctionType) and compiled not in seen:
                seen.add(compiled)
                waiting.append(compiled)
            elif isinstance(value, FunctionType | type) and f"'{name}'" in message:
                top, _, _ = value.__module__.partition(".")
                if not of_a_package(top):
                    return _plain(name, value)
    return ""


def _plain(name: str, value: FunctionType | type) -> str:
    if isinstance(value, type):
        return f"the class {name}, which is not compiled; put what it needs of it outside of the class"
    place = f"{Path(value.__code__.co_filename).name}, line {value.__code__.co_firstlineno}"
    return f"the function {name} ({place}), which is not compiled; put @numba.njit in front of it"


def _message(error: Exception, path: Path) -> str:
    """Return the informative line of a Numba error, after the line number in the user's file."""
    lines = [line.strip() for line in str(error).splitlines()]
    words = next((line for line in lines if line and not line.startswith(("Failed in", "During"))), "no message")
    return f"{_line(error, path)}{words}"


def _line(error: Exception, path: Path) -> str:
    """Return the line number in the user's file from a Numba error, with a colon, or an empty text."""
    places = re.findall(rf'{re.escape(path.name)}"?, line (\d+)', str(error))
    return f"line {places[-1]}: " if places else ""
