"""What Python programs may rely on: `import replaybench` offers it, and costs nothing until it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import replaybench

GUIDE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"


@pytest.mark.parametrize("name", replaybench.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(replaybench, name)
    assert inspect.getdoc(found)
    assert f"`replaybench.{name}" in GUIDE.read_text(encoding="utf-8")


def test_importing_the_package_imports_none_of_it() -> None:
    program = "import sys, replaybench; print(sorted(m for m in sys.modules if m.startswith('replaybench.')))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['replaybench.runtime', 'replaybench.runtime.version']"


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert replaybench.__version__ == project["version"]


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'load_polcy'"):
        replaybench.load_polcy  # noqa: B018
    assert dir(replaybench) == replaybench.__all__
