"""What is read side by side has names of its own."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import replaybench.experiments

TOGETHER = ("figures", "report", "results", "claims", "inspection", "snapshots")


def test_what_figures_and_reports_are_made_of_has_one_name_each() -> None:
    """Others take them apart by their folder; these parts import each other."""
    (folder,) = map(Path, replaybench.experiments.__path__)
    files = [path for part in TOGETHER for path in sorted((folder / part).rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert len(names) > 20
    assert not [name for name, count in names.items() if count > 1]
