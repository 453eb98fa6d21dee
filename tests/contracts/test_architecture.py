"""The rules of the house, read from the source.

Layers point one way, files import each other in no circle, files stay small enough to be read, and randomness comes
from named streams.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "replaybench"
EXAMPLES = PACKAGE / "examples"
"""What users copy and run; no part of the house."""
FILES = sorted(path for path in PACKAGE.rglob("*.py") if EXAMPLES not in path.parents)
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


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path: Path) -> set[str]:
    """Every module a file imports, anywhere in it."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def test_imports_point_one_way() -> None:
    found = set()
    for path in (file for file in FILES if file.parent != PACKAGE):
        for parts in (module.split(".") for module in imports(path)):
            if parts[0] == "replaybench" and len(parts) > 1:
                assert parts[1] in MAY_IMPORT[wing(path)], f"{path} imports {'.'.join(parts)}"
                found.add((wing(path), parts[1]))
    assert {("experiments", "envs"), ("experiments", "baselines"), ("baselines", "envs")} <= found


COUNTED_UP = {"CellHistory", "Composition"}
"""Classes that are filled in as a file is read, or a run goes on."""


def test_descriptions_and_results_cannot_be_changed() -> None:
    """Strategies, settings and studies are hashed, compared and shared: every data class is frozen."""
    found = 0
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and node.name not in COUNTED_UP:
                made = [ast.unparse(one) for one in node.decorator_list if "dataclass" in ast.unparse(one)]
                found += len(made)
                assert all("frozen=True" in one for one in made), f"{path}: {node.name}"
    assert found > 50


GENERATORS = {"Generator", "SeedSequence", "PCG64", "SFC64"}


def test_no_global_randomness() -> None:
    """No `random`, no `torch.manual_seed`, no `numpy.random` beyond explicitly seeded generators."""
    for path in FILES:
        assert "random" not in imports(path)
        for text in (ast.unparse(node) for node in nodes(path) if isinstance(node, ast.Attribute)):
            if text.startswith(("np.random.", "numpy.random.")):
                assert text.split(".")[2].split("(")[0] in GENERATORS, f"{path}: {text}"
            assert not text.endswith("manual_seed"), f"{path}: {text}"


def test_files_are_never_trusted() -> None:
    """No pickle, no eval: `exec` only where compiled plant kernels are made from the package's own template."""
    for path in FILES:
        assert not imports(path) & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
        for node in nodes(path):
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


MODULES = {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in FILES}
"""Files by dotted name; a package's `__init__` only offers names of its modules to users, and is left out here."""


def files_imported(path: Path) -> set[Path]:
    """Every other file of the package that a file imports, anywhere in it: lazily, or for types only, too."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
        else:
            continue
        found |= {MODULES[name] for name in names if name in MODULES}
    return found - {path}


def circles(graph: Mapping[Path, set[Path]]) -> set[frozenset[Path]]:
    """Return the groups of files of which each leads to each other."""

    def reached(start: Path) -> set[Path]:
        seen: set[Path] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {path: reached(path) for path in graph}
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}


def test_no_circle_of_files() -> None:
    graph = {path: files_imported(path) for path in MODULES.values()}
    assert sum(map(len, graph.values())) > 500, "the walk sees the imports"
    assert not circles(graph)


def test_a_circle_would_be_found() -> None:
    a, b, c, d = map(Path, "abcd")
    assert circles({a: {b}, b: {c}, c: {d}, d: {b}}) == {frozenset({b, c, d})}
    assert not circles({a: {b}, b: {c, d}, c: {d}, d: set()})


def test_lazy_imports_and_those_for_types_are_counted(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from replaybench.data.errors import UserError\n"
        "def work():\n    from replaybench.data import atomic\n    import replaybench.data.cache\n"
    )
    assert {path.name for path in files_imported(tmp_path / "lazy.py")} == {"errors.py", "atomic.py", "cache.py"}


MOST_LINES = 500


def test_files_can_be_read() -> None:
    assert not [path for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES]
