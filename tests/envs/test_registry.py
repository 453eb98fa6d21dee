"""Plants by name and by file."""

import re
import sys
from pathlib import Path

import pytest

from replaybench.envs.ode.magman import Magman
from replaybench.envs.registry import PLANTS, is_installed, make_plant, missing, plant_class, plant_names
from tests.helpers.refusals import refuses

EXAMPLE = Path(__file__).parents[2] / "replaybench" / "examples" / "cart_pole.py"


def test_plants_are_made_by_name_with_parameters() -> None:
    assert plant_names()[:3] == ("Pendulum", "PendulumDCSC", "Magman")
    assert make_plant("Magman", first_magnet_at=0.0) == Magman(first_magnet_at=0.0)
    assert all(make_plant(name).name == name for name in plant_names() if not missing(name))
    assert make_plant("magMAN") == make_plant("Magman")
    assert is_installed("pendulumdcsc")
    assert missing("acercheetah") == missing("AcerCheetah")


def test_a_plant_is_made_from_a_file_that_is_read_again_when_edited(tmp_path: Path) -> None:
    tank, path = EXAMPLE.with_name("two_tank.py"), tmp_path / "own.py"
    assert plant_class(f"{tank}:TwoTank") is plant_class(f"{tank}:TwoTank")
    changed = vars(make_plant(f"{tank}:TwoTank", rim=0.5))
    assert (changed["area"], changed["outlet"], changed["rim"]) == (1.5e-2, 5e-5, 0.5)
    (tmp_path / "beside.py").write_text("AREA = 3.0\n")
    text = tank.read_text(encoding="utf-8").replace("area: float = 1.5e-2", "area: float = AREA")
    path.write_text(text.replace("import numpy as np\n", "import numpy as np\nfrom beside import AREA\n", 1), "utf-8")
    before = list(sys.path)
    assert vars(make_plant(f"{path}:TwoTank"))["area"] == 3.0
    path.write_text(path.read_text(encoding="utf-8").replace("= AREA", "= 2 * AREA"), "utf-8")
    assert vars(make_plant(f"{path}:TwoTank"))["area"] == 6.0
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("Pendulm", {}, "unknown plant 'Pendulm'; did you mean Pendulum or PendulumDCSC?"),
        ("x", {}, f"unknown plant 'x'; valid: {', '.join([*sorted(plant_names()), *PLANTS.also_named])}"),
        ("Pendulum", {"inertai": 1.0}, "unknown parameter of Pendulum 'inertai'; did you mean inertia?"),
        ("nowhere.py", {}, "'nowhere.py' names no plant in the file; write nowhere.py:ClassName"),
        ("a\0.py", {}, "'a\\x00.py' names no plant in the file; write a\0.py:ClassName"),
        (f"{EXAMPLE}:Cartpole", {}, f"unknown plant in {EXAMPLE} 'Cartpole'; did you mean CartPole?"),
        (f"{EXAMPLE}:main", {}, f"main in {EXAMPLE} is no plant; derive it from OdePlant or PythonPlant"),
    ],
)
def test_unknown_names_raise_one_line_errors(name: str, parameters: dict[str, float], message: str) -> None:
    refuses(f"^{re.escape(message)}$", make_plant, name, **parameters)


def test_a_missing_file_is_named_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refuses(f"^no plant file 'nowhere.py' in {tmp_path}, where this runs; give", make_plant, "nowhere.py:A")
    refuses("^no plant file '/no/where.py'; give the path of a Python file that exists$", make_plant, "/no/where.py:A")


def test_a_class_in_a_file_of_this_folder_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oven.py").write_text("raise SystemExit('it ran')\nclass Oven(OdePlant): ...\n")
    for name in ("oven", "Oven"):
        refuses(f"^unknown plant '{name}'; did you mean oven.py:Oven\\?$", make_plant, name)
    refuses("^unknown plant 'Ove'; valid: ", make_plant, "Ove")


def test_is_installed_accepts_only_names_that_run_installed_code() -> None:
    assert is_installed("Pendulum")
    assert is_installed("gymnasium:Pendulum-v1")
    for name in ("own.py:Mine", "gymnasium:own.py:Mine-v0", "gymnasium:module:Mine-v0", "None", ""):
        assert not is_installed(name)


def test_a_missing_dataclass_decorator_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bare.py"
    path.write_text(EXAMPLE.read_text().replace("@dataclass(frozen=True, kw_only=True)\n", ""))
    refuses(r"needs @dataclass\(frozen=True, kw_only=True\) in front of it$", make_plant, f"{path}:CartPole")


def refused(folder: Path, told: str, *edits: tuple[str, str]) -> None:
    """Edit the example, and check that it is refused in one line."""
    source = EXAMPLE.read_text(encoding="utf-8")
    for original, replacement in edits:
        assert original in source
        source = source.replace(original, replacement, 1)
    (folder / "own.py").write_text(source, encoding="utf-8")
    refuses(told, make_plant, f"{folder / 'own.py'}:CartPole")


BUGS = [
    ("def rhs(x: Vector, u: Vector, p: Params) -> tuple[float, ...]:\n", "def rhs(x: Vector, u Vector):\n", "line 3"),
    ("M, m, l, b = p", "M, m, l = p", "too many values to unpack"),
    ("return x[1], acceleration, x[3], -(acc", "return x[1], x[3], -(acc", "returns 3 derivatives for 4 states"),
    ("math.sin(x[2]), math", "math.sin(x[7]), math", "IndexError"),
    ("import math\n", "import math\nimport no_such_module\n", "No module named"),
    ("abs(x_next[0]) > 2.4", "abs(x_next[4]) > 2.4", "IndexError"),
    ("abs(x_next[0]) > 2.4", "abs(x_next[0]) > LIMIT", "line 55: NameError"),
    ("        return bool(abs(x_next[0]) > 2.4)", "        bool(abs(x_next[0]) > 2.4)", "terminated returns None"),
    ("x[2] = wrap_angle(x[2])\n        return 0", "x[2] = wrap_angle(x[2])", "project returns None"),
    ("-float(abs(x_next[0])", "-float(CartPole.name == x_next[0]", "line 46: reward needs the class CartPole, which"),
    ("return 0\n", "with open('/dev/null'):\n            return 0\n", "Numba, which compiles project, does not know"),
]


@pytest.mark.parametrize(("original", "replacement", "told"), BUGS)
def test_a_bug_in_an_own_plant_is_one_line(tmp_path: Path, original: str, replacement: str, told: str) -> None:
    refused(tmp_path, told, (original, replacement))


@pytest.mark.parametrize(
    ("helper", "call", "told"),
    [
        ("def half(v):\n    return v / 2", "half(x[1])", r"line 46: rhs needs the function half \(own.py, line 7\)"),
        ("half = lambda v: v / 2", "half(x[1])", r"the function half \(own.py, line 7\)"),
        ("import beside", "beside.half(x[1])", r"the function half \(beside.py, line 4\)"),
        ("from beside import twice", "0.25 * twice(x[1])", r"the function half \(beside.py, line 4\)"),
        ("HALF = 0.5", "CartPole._part(x[1])", "rhs needs the class CartPole, which is .*; put what it needs of"),
    ],
)
def test_a_helper_that_is_not_compiled_is_named(
    tmp_path: Path, helper: str, call: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    part = "    @staticmethod\n    def _part(v):\n        return v\n\n    @staticmethod\n"
    (tmp_path / "beside.py").write_text(
        "import numba\n\n\ndef half(v):\n    return v / 2\n\n\n@numba.njit\ndef twice(v):\n    return 4 * half(v)\n"
    )
    edits = ("import math\n", f"import math\n{helper}\n"), ("b * x[1]", call), ("    @staticmethod\n", part)
    refused(tmp_path, told, *edits)


OWN = """
from dataclasses import dataclass
from {module} import {base}

@dataclass(frozen=True, kw_only=True)
class Mine({base}):
    {method}
"""


@pytest.mark.parametrize(
    ("module", "base", "method"),
    [
        ("replaybench.envs.mujoco.locomotion", "MujocoHopper", "def constants(self):\n        return (1.0, 2.0)"),
        ("replaybench.envs.bullet.walkers", "BulletHopper", "def alive(self, now):\n        return now > 1.0"),
        ("replaybench.envs.flow.plant", "Drafting", "def engine(self, num_envs, frequency):\n        return 1.0"),
    ],
)
def test_edits_change_the_fingerprint(tmp_path: Path, module: str, base: str, method: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN.format(module=module, base=base, method=method))
    before = make_plant(f"{path}:Mine").fingerprint()
    assert make_plant(f"{path}:Mine").fingerprint() == before
    path.write_text(OWN.format(module=module, base=base, method=method.replace("1.0", "5.0")))
    assert make_plant(f"{path}:Mine").fingerprint() != before
    assert make_plant(base).fingerprint() != before
