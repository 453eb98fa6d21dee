"""The architecture, read from the source.

Packages, folders and files import each other in one direction, and randomness comes from named streams.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "replaybench"
EXAMPLES = PACKAGE / "examples"
"""What users copy and run; not part of the package's structure."""
FILES = sorted(path for path in PACKAGE.rglob("*.py") if EXAMPLES not in path.parents)
_FROM_TEMPLATES = ("envs/ode/rk4.py", "device/plants.py")
"""Files that execute source that they make from their own template and numbers."""
_DOMAINS = ("envs", "replay", "controllers")
"""Packages that do not import each other."""
_ORDER = (
    *("runtime", "data", *_DOMAINS, "baselines", "device", "experiments", "exchange", "evidence", "reports"),
    *("api", "cli"),
)
MAY_IMPORT = {name: set(_ORDER[: place + 1]) for place, name in enumerate(_ORDER)}
for _name in _DOMAINS:
    MAY_IMPORT[_name] = {"runtime", "data", _name}
MAY_IMPORT["baselines"] = {"runtime", "data", "envs", "baselines"}


def package(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path: Path) -> set[str]:
    """Every module a file imports, and what it imports from one, anywhere in it: lazily, or for types only, too."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}", *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_imports_point_one_way() -> None:
    for path in FILES:
        for module in imports(path):
            parts = module.split(".")
            if parts[0] == "replaybench" and parts[1:] not in ([], ["__version__"]) and package(path) in MAY_IMPORT:
                assert parts[1] in MAY_IMPORT[package(path)], f"{path} imports {module}"
    assert {package(file) for file in FILES} >= MAY_IMPORT.keys()
    assert any("replaybench.envs.population" in imports(file) for file in FILES if package(file) == "experiments")


COUNTED_UP = {"CellHistory", "Composition", "_Pace"}
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


def test_no_global_randomness_and_no_trusted_files() -> None:
    """No `random`, no `torch.manual_seed`, no `numpy.random` beyond explicitly seeded generators; no pickle, no eval.

    `exec` only where compiled plant kernels are made from the package's own template.
    """
    for path in FILES:
        refused = {"random", "pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
        assert not imports(path) & refused, path
        for node in nodes(path):
            if isinstance(node, ast.Attribute):
                assert node.attr != "manual_seed", path
                if ast.unparse(node.value) in ("np.random", "numpy.random"):
                    assert node.attr in GENERATORS, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "eval", path
                assert node.func.id != "exec" or path.relative_to(PACKAGE).as_posix() in _FROM_TEMPLATES, path


PRINTING = {
    *("api.py", "__main__.py", "envs/flow/navier_stokes/engine.py", "evidence/advice/advise.py"),
    *("evidence/advice/probes.py", "reports/offline.py"),
    *(f"experiments/{name}.py" for name in ("display", "overview", "progress", "sweep", "text_table", "workers")),
}
"""Files outside of the command line that show the progress of long computations, or lay out text."""


def test_other_packages_return_what_the_command_line_prints() -> None:
    printing = set()
    for path in FILES:
        calls = {ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call)}
        if package(path) != "cli" and (calls & {"print"} or imports(path) & {"rich.console.Console", "rich.progress"}):
            printing.add(path.relative_to(PACKAGE).as_posix())
    assert printing == PRINTING


MODULES = {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in FILES}
"""Files by dotted name; a package's `__init__` only offers names of its modules to users, and is left out here."""


def files_imported(path: Path) -> set[Path]:
    """Every other file of the package that a file imports."""
    return {MODULES[name] for name in imports(path) if name in MODULES} - {path}


Graph = Mapping[Path, set[Path]]


@functools.cache
def whole() -> Graph:
    return {path: files_imported(path) for path in MODULES.values()}


def reached(graph: Graph, start: Path) -> set[Path]:
    """Return what a file imports, directly or through others."""
    seen: set[Path] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def circles(graph: Graph) -> set[frozenset[Path]]:
    """Return the groups of files of which each leads to each other."""
    reach = {path: reached(graph, path) for path in graph}
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}


def test_no_circle_of_files() -> None:
    assert sum(map(len, whole().values())) > 500, "the walk sees the imports"
    assert not circles(whole())


def test_a_circle_would_be_found() -> None:
    a, b, c, d = map(Path, "abcd")
    assert circles({a: {b}, b: {c}, c: {d}, d: {b}}) == {frozenset({b, c, d})}
    assert not circles({a: {b}, b: {c, d}, c: {d}, d: set()})


def test_lazy_imports_and_those_for_types_are_counted(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from replaybench.runtime.errors import UserError\n"
        "def work():\n    from replaybench.runtime import atomic\n    import replaybench.runtime.kernel\n"
    )
    assert {path.name for path in files_imported(tmp_path / "lazy.py")} == {"errors.py", "atomic.py", "kernel.py"}


def test_folders_form_an_order() -> None:
    """A folder that imports another is not imported by it, directly or through others."""
    graph: dict[Path, set[Path]] = {path.parent: set() for path in whole() if path.parent != PACKAGE}
    for path, others in whole().items():
        if path.parent != PACKAGE:
            graph[path.parent] |= {other.parent for other in others} - {path.parent, PACKAGE}
    assert len(graph) > 20, "the walk sees the folders"
    assert not circles(graph)
