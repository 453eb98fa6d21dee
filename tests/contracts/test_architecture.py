"""The rules of the house, read from the source: layers point one way, and randomness comes from named streams."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "replaybench"
FILES = sorted(PACKAGE.rglob("*.py"))
MAY_IMPORT = {
    "data": {"data"},
    "envs": {"envs", "data"},
    "replay": {"replay", "data"},
    "controllers": {"controllers", "data"},
    "baselines": {"baselines", "envs", "data"},
    "experiments": {"experiments", "baselines", "envs", "replay", "controllers", "data"},
}


def wing(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def imports(path: Path) -> set[str]:
    """Every module a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", [file for file in FILES if file.parent != PACKAGE], ids=str)
def test_imports_point_one_way(path: Path) -> None:
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "replaybench" and len(parts) > 1:
            assert parts[1] in MAY_IMPORT[wing(path)], f"{path} imports {module}"


def test_the_walk_sees_the_wings() -> None:
    assert {wing(file) for file in FILES} >= MAY_IMPORT.keys()
    assert any("replaybench.envs.population" in imports(file) for file in FILES if wing(file) == "experiments")


COUNTED_UP = {"Composition"}
"""Classes that are filled in as a file is read."""


def test_descriptions_and_results_cannot_be_changed() -> None:
    """Strategies, settings and studies are hashed, compared and shared: every data class is frozen."""
    found = 0
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in COUNTED_UP:
                made = [ast.unparse(one) for one in node.decorator_list if "dataclass" in ast.unparse(one)]
                found += len(made)
                assert all("frozen=True" in one for one in made), f"{path}: {node.name}"
    assert found > 50


GENERATORS = {"Generator", "SeedSequence", "PCG64", "SFC64"}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_global_randomness(path: Path) -> None:
    """No `random`, no `torch.manual_seed`, no `numpy.random` beyond explicitly seeded generators."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert "random" not in imports(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text.startswith(("np.random.", "numpy.random.")):
                assert text.split(".")[2].split("(")[0] in GENERATORS, f"{path}: {text}"
            assert not text.endswith("manual_seed"), f"{path}: {text}"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_are_never_trusted(path: Path) -> None:
    """No pickle, no eval: `exec` only where compiled plant kernels are made from the package's own template."""
    text = path.read_text(encoding="utf-8")
    assert not imports(path) & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "eval"
            assert node.func.id != "exec" or path.name == "rk4.py"


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, replaybench, replaybench.experiments.cli\n"
        "heavy = {'numpy', 'numba', 'torch', 'scipy', 'xarray', 'matplotlib', 'h5py', 'gymnasium'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
