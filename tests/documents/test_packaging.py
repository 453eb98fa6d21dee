"""The package as it is installed, and its public interface."""

import inspect
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import FunctionType

import pytest

import replaybench
from replaybench import extend
from replaybench.envs import registry

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def in_order(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, and the wheel that is made from nothing but it."""
    folder = tmp_path_factory.mktemp("built")
    program = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[2])(sys.argv[1])"
    source = folder / "source"
    files = in_order("git", "ls-files", "-co", "--exclude-standard", folder=ROOT).splitlines()
    for name in files:
        if (ROOT / name).is_file() and name.partition("/")[0] not in ("benchmarks", "tests"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    in_order(sys.executable, "-c", program, str(folder), "build_sdist", folder=source)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "archive", filter="data")
    (unpacked,) = (folder / "archive").iterdir()
    in_order(sys.executable, "-c", program, str(folder), "build_wheel", folder=unpacked)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path) -> dict[str, str]:
    """An environment in which the wheel's package is the one that is found; all else is that of the tests."""
    (wheel,), target = built.glob("*.whl"), built / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target))
    in_order(*pip, str(wheel), folder=built)
    return {**os.environ, "PYTHONPATH": str(target)}


@pytest.mark.slow
def test_the_wheel_is_typed_and_holds_its_data(installed: dict[str, str]) -> None:
    package = Path(installed["PYTHONPATH"]) / "replaybench"
    for folder, kind in (("studies", "*.toml"), ("examples", "*"), ("envs/mujoco/assets", "*.xml")):
        ours = {path.name for path in (ROOT / "replaybench" / folder).glob(kind) if path.is_file()}
        assert ours
        assert {path.name for path in (package / folder).glob(kind) if path.is_file()} == ours
    assert (package / "py.typed").is_file()


@pytest.mark.slow
def test_commands_run_from_an_empty_folder(installed: dict[str, str], tmp_path: Path) -> None:
    def command(*words: str) -> str:
        return in_order(sys.executable, "-m", "replaybench", *words, folder=tmp_path, environment=installed)

    where = "import replaybench; print(replaybench.__file__)"
    found = in_order(sys.executable, "-c", where, folder=tmp_path, environment=installed)
    assert found.startswith(installed["PYTHONPATH"])
    assert "12 cells, 12 to run" in command("sweep", "demo", "--dry-run")
    assert "examples/rig_log.csv" in command("examples")
    assert "own-plant: 2 cells" in command("sweep", "examples/own_plant.toml", "--dry-run")


EXTRAS = set(PROJECT["optional-dependencies"])
FOR_CLONES = {"bench", "dev", "docs"}


@pytest.mark.slow
def test_what_lacks_an_extra_says_so_and_the_guide_lists_it() -> None:
    guide = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "replaybench").rglob("*.py"))
    of_plants = {"bullet", "dm"}  # named by envs/registry.py, plant by plant
    for extra in EXTRAS - FOR_CLONES:
        assert f"| `replaybench[{extra}]` |" in guide
        assert f"replaybench[{extra}]" in code or extra in of_plants, extra


def test_make_checks_what_git_tracks(tmp_path: Path) -> None:
    """A file that a user has saved in the clone, and one that a developer has just removed, are no faults."""
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    for name in ("pyproject.toml", "constraints.txt", "replaybench/ours.py", "gone.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    in_order("git", "init", "-q", folder=tmp_path)
    in_order("git", "add", ".", folder=tmp_path)
    (tmp_path / "gone.py").unlink()
    (tmp_path / "replaybench" / "own_plant.py").touch()
    told = in_order("make", "--dry-run", "test", folder=tmp_path)
    for tool in ("ruff check", "ruff format --check", "mypy"):
        assert f".venv/bin/{tool} replaybench/ours.py\n" in told


def test_every_extra_that_is_named_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "CONTRIBUTING.md", ROOT / "Makefile")]
    for folder in ("docs", "replaybench"):
        texts += [path.read_text(encoding="utf-8") for kind in ("*.md", "*.py") for path in (ROOT / folder).rglob(kind)]
    named = re.findall(r"""(?:replaybench|["'.])\[([a-z0-9,]+)\]["']""", "\n".join(texts))
    assert len(named) > 20, "the walk sees them"
    assert {extra for group in named for extra in group.split(",")} <= EXTRAS
    assert {entry.extra for entry in registry._PLANTS.values()} - {""} <= EXTRAS


@pytest.mark.parametrize("name", replaybench.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert inspect.getdoc(getattr(replaybench, name))
    assert f"`replaybench.{name}" in (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


EXTENSIONS = sorted(name for name in vars(extend) if not name.startswith("_"))


def test_extensions_are_listed_and_documented() -> None:
    """The reference lists exactly the names of `replaybench.extend`."""
    section = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8").partition("## Extensions")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == EXTENSIONS
    for name in EXTENSIONS:
        thing = getattr(extend, name)
        assert inspect.getdoc(thing) or not isinstance(thing, type | FunctionType), name


INSIDE = re.compile(r"^[ \"]*(?:from|import) (replaybench\.[\w.]+)", re.MULTILINE)
PUBLIC = {"replaybench.extend", "replaybench.envs"}
"""`replaybench.envs` registers plants with Gymnasium."""


def test_examples_and_documents_import_public_names_only() -> None:
    folders = ("replaybench/examples", "docs/tutorials", "docs/how-to", "docs/reference")
    files = [path for folder in folders for kind in ("*.py", "*.md", "*.ipynb") for path in (ROOT / folder).rglob(kind)]
    found = {path: set(INSIDE.findall(path.read_text(encoding="utf-8"))) for path in files}
    assert sum("replaybench.extend" in modules for modules in found.values()) > 5
    assert {path: modules - PUBLIC for path, modules in found.items() if modules - PUBLIC} == {}


def test_importing_the_package_imports_none_of_it() -> None:
    program = "import sys, replaybench; print(sorted(m for m in sys.modules if m.startswith('replaybench.')))"
    found = in_order(sys.executable, "-c", program, folder=ROOT)
    assert found.strip() == "['replaybench.runtime', 'replaybench.runtime.version']"


def test_plants_and_cells_import_no_matplotlib() -> None:
    """Workers then start sooner: only pictures need it."""
    modules = sorted({entry.module for entry in registry._PLANTS.values() if not entry.needs})
    program = f"import importlib, sys; [importlib.import_module(name) for name in {modules}]"
    program += "; import replaybench.experiments.cell; print('matplotlib' in sys.modules)"
    assert in_order(sys.executable, "-c", program, folder=ROOT).strip() == "False"


def test_the_version_is_that_of_the_package() -> None:
    assert replaybench.__version__ == PROJECT["version"]


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'load_polcy'"):
        replaybench.load_polcy  # noqa: B018
    assert dir(replaybench) == replaybench.__all__
