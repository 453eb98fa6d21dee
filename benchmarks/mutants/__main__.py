"""Break the package on purpose and see which tests notice: python -m benchmarks.mutants [PART OF A FILE'S NAME …]

Cosmic Ray changes one place of a file at a time, and the tests that protect this file run on the change: a mutant is
killed when one of them fails. Of each file the same places are drawn each time, `PER_FILE` of them and at most one
mutant per operator sign, number or word, by a fixed seed. Left out are annotations, which are never evaluated, and
decorators.

Everything happens in a clone of the last commit, in one process that forks for each mutant with the libraries already
imported. Kernels that cannot see the mutated file come compiled from the cache of the unbroken run; all others are
compiled anew, which the cache sees to by itself.

Writes `benchmarks/results/mutants.json`, of the files named on the command line only those parts, and the readable
`mutants.md`. A survivor is a gap in the tests, or it is explained in `benchmarks/mutants/explained.toml`; one without
explanation ends the script with 1. `--again` runs only the stored survivors, after tests were added for them, and new
mutants in place of those whose lines are gone.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1", CI="true")

import cosmic_ray.commands
import cosmic_ray.plugins
import h5py  # noqa: F401  imported once for all forks, as the next ones are
import hypothesis
import numba
import pytest
import scipy.stats  # noqa: F401
from cosmic_ray.mutating import mutate_code, use_mutation
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

STRATEGIES = "replay/strategies"
ORACLE = f"{STRATEGIES}/test_strategy.py {STRATEGIES}/test_notation.py"
"""The naive buffer with which all draws are compared, and the refusals of wrong parameters."""
PROMISES = "contracts/test_every_learner.py::test_every_learner_keeps_its_promises"
NOISE = f"controllers/test_exploration.py {PROMISES}[DDPG:gaussian] {PROMISES}[DDPG:parameter]"
"""Laws of exploration; that it is resumed, and independent of the population, is a contract of learners."""
REFERENCES = "baselines/test_references.py"
SLOW = f"tests/{REFERENCES}::test"
FILES = {  # name, which stays when files move and draws the places: what is broken, and the tests that are to notice
    "replay/retention": (f"{STRATEGIES}/retention.py", f"{STRATEGIES}/test_retention.py {ORACLE}"),
    "replay/sampling": (f"{STRATEGIES}/uniform.py", ORACLE),
    "replay/ranked": (f"{STRATEGIES}/prioritised.py", f"{STRATEGIES}/test_sampling.py {ORACLE}"),
    "replay/proportional": (f"{STRATEGIES}/prioritised.py", f"{STRATEGIES}/test_sampling.py {ORACLE}"),
    "replay/recency": (f"{STRATEGIES}/recent.py", f"{STRATEGIES}/test_sampling.py {ORACLE}"),
    "replay/attention": (f"{STRATEGIES}/attentive.py", f"{STRATEGIES}/test_sampling.py {ORACLE}"),
    "replay/weights": (f"{STRATEGIES}/weighting.py", f"{STRATEGIES}/test_sampling.py {ORACLE}"),
    "replay/entry": (f"{STRATEGIES}/entry.py", f"{STRATEGIES}/test_retention.py {ORACLE}"),
    "replay/traces": ("replay/storage/traces.py", "replay/test_storage.py"),
    "controllers/exploration": ("controllers/interface/noise.py", NOISE),
    "controllers/gaussian_noise": ("controllers/interface/noise.py", NOISE),
    "controllers/parameter_noise": ("controllers/interface/exploration.py", NOISE),
    "baselines/scores": (
        "baselines/references.py",
        f"{REFERENCES} --deselect={SLOW}_reference_values --deselect={SLOW}_a_plant_that_is_slowed_down",
    ),
    "experiments/stats": ("experiments/statistics.py", "experiments/test_statistics.py"),
    "experiments/study": ("experiments/study.py", "experiments/test_study.py"),
    "experiments/results": ("experiments/dataset.py", "experiments/test_dataset.py"),
}
RULES = "contracts/test_architecture.py::test_descriptions_and_results_cannot_be_changed"
"""Run beside each file's own tests."""

PER_FILE, SEED = 20, 2018
SURE_END, SLACK = 5.0, 3.0
"""A mutant may use so many seconds of processor time, and so many times what the unbroken tests use."""

MOST_MEMORY = 12 << 30
NO_REASON = "**not explained**"
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
EXPLAINED = ROOT / "benchmarks" / "mutants" / "explained.toml"


def annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where annotations begin and end."""
    found = []
    for node in ast.walk(ast.parse(source)):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if isinstance(part, ast.expr):
                assert part.end_lineno is not None
                assert part.end_col_offset is not None
                found.append(((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)))
    return found


def possible(path: Path) -> list[MutationSpec]:
    """Return the mutants of a file that are of interest, by place."""
    untouched = annotations(path.read_text(encoding="utf-8"))
    with use_db(":memory:", WorkDB.Mode.create) as session:
        cosmic_ray.commands.init([path], session, {})
        mutations = [mutation for item in session.work_items for mutation in item.mutations]
    found = []
    for mutation in sorted(mutations, key=lambda m: (m.start_pos, m.operator_name, m.occurrence)):
        outside = not any(low <= mutation.start_pos < high for low, high in untouched)
        if outside and not mutation.operator_name.endswith("RemoveDecorator"):
            found.append(mutation)
    return found


def drawn(path: Path, name: str, known: list[dict[str, Any]]) -> list[MutationSpec]:
    """Return the mutants of a file: those that are known and still there, each place at most once.

    What these leave of `PER_FILE` is drawn by the seed and the file's name in the table.
    """
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    wanted = {same(mutant) for mutant in known}
    beginnings = {(mutant["operator"], mutant["was"]) for mutant in known}  # to mutate them all takes long
    chosen: dict[tuple[int, int], MutationSpec] = {}
    places: dict[tuple[int, int], list[MutationSpec]] = {}
    for mutation in possible(path):
        places.setdefault(mutation.start_pos, []).append(mutation)
        beginning = (mutation.operator_name.removeprefix("core/"), lines[mutation.start_pos[0] - 1])
        if beginning in beginnings and same(described(mutation)) in wanted:
            chosen.setdefault(mutation.start_pos, mutation)
            wanted.discard(same(described(mutation)))
    draw = random.Random(f"{SEED} {name}.py")
    others = {place: draw.choice(mutations) for place, mutations in sorted(places.items())}
    left = [mutation for place, mutation in others.items() if place not in chosen]
    found = [*chosen.values(), *draw.sample(left, min(max(PER_FILE - len(chosen), 0), len(left)))]
    return sorted(found, key=lambda mutation: mutation.start_pos)


def same(mutant: dict[str, Any]) -> tuple[str, ...]:
    """Return what tells one mutant of a file from another, also after other lines have moved."""
    return mutant["operator"], mutant["was"], mutant["became"]


class Workshop:
    """A clone of the last commit, with a cache of compiled kernels of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.warm = folder, folder / "tree", folder / "warm"
        if not self.tree.exists():
            subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(self.tree)], check=True)
        for command in (["fetch", "--quiet", str(ROOT), "HEAD"], ["reset", "--quiet", "--hard", "FETCH_HEAD"]):
            subprocess.run(["git", *command], cwd=self.tree, check=True)
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=self.tree, capture_output=True, text=True)
        self.commit = head.stdout.strip()

    def run(self, tests: str, cache: Path, seconds: float) -> tuple[bool, float]:
        """Run tests in a fork; return whether they passed, and the processor time they took."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)  # no session of its own, which Linux would give a share of the processor beside all others
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            signal.alarm(1200)
            try:
                code = self._test(tests, cache)
                sys.stdout.flush()
            except BaseException:
                os.write(2, traceback.format_exc().encode())
                code = 99
            os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests may have started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return status == 0, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def _test(self, tests: str, cache: Path) -> int:
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(self.tree)
        os.environ.update(REPLAYBENCH_CACHE=str(cache), PYTHONPATH=str(self.tree))
        sys.path.insert(0, str(self.tree))
        sys.dont_write_bytecode = True
        hypothesis.settings.load_profile("mutants")
        if cache != self.warm:
            self._reuse(cache)
        options = ["-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        return int(pytest.main([*options, *(part if part[0] == "-" else f"tests/{part}" for part in tests.split())]))

    def _reuse(self, cache: Path) -> None:
        """Link the unbroken run's kernels into the cache: it goes by content, a mutant finds none of its own."""
        for part in ("numba", "kernels"):
            if (self.warm / part).exists():
                shutil.copytree(self.warm / part, cache / part, copy_function=os.link)

    def fate(self, mutation: MutationSpec, tests: str, seconds: float) -> tuple[bool, float]:
        """Return whether the tests noticed a mutant, and the processor time they took."""
        operator = cosmic_ray.plugins.get_operator(mutation.operator_name)()
        times = os.stat(mutation.module_path)
        with use_mutation(mutation.module_path, operator, mutation.occurrence):
            passed, spent = self._run_anew(tests, seconds)
        os.utime(mutation.module_path, ns=(times.st_atime_ns, times.st_mtime_ns))  # compiled kernels go by it
        return not passed, spent

    def unbroken(self, path: Path, tests: str) -> float:
        """Compile what the tests need; return their time where all that can see `path` is compiled anew."""
        passed, _ = self.run(tests, self.warm, 600.0)
        text, times = path.read_bytes(), os.stat(path)
        path.write_bytes(text + b"# another file\n")
        passed_again, spent = self._run_anew(tests, 600.0)
        path.write_bytes(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if not (passed and passed_again):
            raise SystemExit(f"{tests} fails without any mutant:\n{(self.folder / 'log').read_text()}")
        return spent

    def _run_anew(self, tests: str, seconds: float) -> tuple[bool, float]:
        cache = Path(tempfile.mkdtemp(dir=self.folder))
        found = self.run(tests, cache, seconds)
        shutil.rmtree(cache)
        return found

    def file(self, name: str, known: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what becomes of a file's mutants; those in `known` that were killed before are not tried again."""
        path, tests = self.tree / "replaybench" / FILES[name][0], f"{FILES[name][1]} {RULES}"
        spent = self.unbroken(path, tests)
        killed = {same(mutant): mutant for mutant in known if mutant["killed"]}
        found = []
        for mutation in drawn(path, name, known):
            mutant = described(mutation)
            if same(mutant) in killed:
                found.append({**killed[same(mutant)], **mutant})
                continue
            fate = self.fate(mutation, tests, SURE_END + SLACK * spent)
            found.append({**mutant, "killed": fate[0], "seconds": round(fate[1], 1), "commit": self.commit})
            print(f"{'killed  ' if fate[0] else 'SURVIVED'} {name}:{mutant['line']} {mutant['became']}", flush=True)
        return {"file": FILES[name][0], "tests": FILES[name][1], "mutants": found}


def described(mutation: MutationSpec) -> dict[str, Any]:
    """Return what a mutation changes: the first line that differs, before and after."""
    operator = cosmic_ray.plugins.get_operator(mutation.operator_name)()
    old = mutation.module_path.read_text(encoding="utf-8")
    new = mutate_code(old, operator, mutation.occurrence)
    lines = zip(old.splitlines(), new.splitlines(), strict=False)
    was, became = next(((a.strip(), b.strip()) for a, b in lines if a != b), ("", ""))
    name = mutation.operator_name.removeprefix("core/")
    return {"line": mutation.start_pos[0], "operator": name, "was": was, "became": became}


def explanations() -> dict[tuple[str, str, str], str]:
    """Return why a mutant cannot be noticed, by file, line and mutated line."""
    with EXPLAINED.open("rb") as file:
        return {(e["file"], e["was"], e["became"]): e["why"] for e in tomllib.load(file)["survivor"]}


def readable(results: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table."""
    why, files = explanations(), results["files"]
    counts = [(len(entry["mutants"]), sum(m["killed"] for m in entry["mutants"])) for entry in files.values()]
    mutants, killed = (sum(column) for column in zip(*counts, strict=True))
    yield from ("# Which mutants the tests notice", "")
    yield f"`make mutants`, with {results['tester']}: of {mutants} mutants the tests kill {killed}."
    yield from ("", "| file | tests | mutants | killed | survived |", "| --- | --- | --- | --- | --- |")
    for entry, (count, dead) in zip(files.values(), counts, strict=True):
        tests = entry["tests"].split()[0]
        yield f"| `{entry['file']}` | `{tests}` | {count} | {dead} | {count - dead} |"
    yield from ("", "## Survivors", "", "| file | was | became | why nothing notices |", "| --- | --- | --- | --- |")
    for name, entry in files.items():
        for m in (m for m in entry["mutants"] if not m["killed"]):
            reason = why.get((name, m["was"], m["became"]), NO_REASON)
            was, became = (text.replace("|", "\\|") for text in (m["was"], m["became"]))
            yield f"| `{entry['file']}` | `{was}` | `{became}` | {reason} |"


def stored(path: Path) -> dict[str, Any]:
    """Return what was found before."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"files": {}}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="only files whose names contain one of these")
    parser.add_argument("--again", action="store_true", help="only the stored survivors, and what is missing")
    parser.add_argument("--table", action="store_true", help="only write the readable table again")
    parser.add_argument("--folder", help="where the clone and its compiled kernels are to stay for the next time")
    chosen = parser.parse_args()
    path = RESULTS / "mutants.json"
    results = stored(path)
    numba.njit(lambda x: x + 1)(1)  # the compiler starts once for all forks
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # a failure need not be made small
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, phases=phases)
    with contextlib.nullcontext(chosen.folder) if chosen.folder else tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder)) if not chosen.table else None
        for name in FILES:
            if workshop is None or (chosen.parts and not any(part in name for part in chosen.parts)):
                continue
            known = results["files"].get(name, {"mutants": []})["mutants"] if chosen.again else []
            entry = workshop.file(name, known)
            entry["date"] = time.strftime("%Y-%m-%d", time.gmtime())
            results = stored(path)
            results["files"][name] = entry
            results["tester"] = f"Cosmic Ray {version('cosmic-ray')}"
            path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    results["files"] = {name: results["files"][name] for name in FILES if name in results["files"]}
    lines = list(readable(results))
    (RESULTS / "mutants.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    unexplained = [line for line in lines if NO_REASON in line]
    print("\n".join(unexplained))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
