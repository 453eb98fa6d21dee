"""Validation of plants: the flow compared with known values, PyBullet with the original environments."""

from benchmarks.tables.stored import RESULTS, facts
from benchmarks.tables.text import number, table

KNOWN = {
    "circle, Re 100, 24 cells/D, 24 × 20 D": ("0.164–0.173", "1.33–1.36", "0.32–0.33"),
    "circle, Re 200, 24 cells/D, 20 × 16 D": ("0.20", "1.31–1.39", "0.65–0.71"),
    "D-section, Re 400, 16 cells/D, 20 × 20 D": ("0.204", "2.27", "0.60"),
    "D-section, Re 400, 16 cells/D, 16 × 10 D": ("0.222", "2.60", ""),
}
"""What is published, or was measured with another program: of flow_validation.py's cases, before its tolerances."""


def texts() -> dict[str, str]:
    return {**_flow(), **_drafting_pays(), **_bullet()}


def _flow() -> dict[str, str]:
    found = facts("flow/validation.json")
    rows = []
    for name, known in KNOWN.items():
        lift = "Cl rms" if name.startswith("D") else "Cl amplitude"
        shown = [number(found[name][quantity], 3) for quantity in ("St", "Cd", lift)]
        rows.append([name, *(f"{a} ({b})" if b else a for a, b in zip(shown, known, strict=True))])
    behind = {
        cells: found[f"ellipse at (3, 0) behind the D-section, {cells} cells/D, 12 × 10 D"]["force x"]
        for cells in (16, 24)
    }
    tilted = "ellipse at 30°, free stream, 20 cells/D"
    return {
        "flow": table(
            ("case", "Strouhal number", "drag coefficient", "lift coefficient (circle: amplitude, D-section: rms)"),
            rows,
        ),
        "flow.tilted": number(found[f"{tilted}, 12 × 10 D"]["force x"], 3),
        "flow.tilted-wide": number(found[f"{tilted}, 20 × 16 D"]["force x"], 3),
        "flow.behind": number(behind[16], 3),
        "flow.behind-fine": number(behind[24], 3),
    }


def _drafting_pays() -> dict[str, str]:
    found = facts("flow/drafting.json")
    free, wake = found["free stream, held by the regulator"], found["wake, drafting"]
    rows = [
        [
            f"holding station in the free stream (closed form {number(free['closed form'], 4)})",
            number(free["cost per step"], 4),
            number(free["cost per step after 50"], 4),
            free["whole episodes"],
        ],
        [
            "drafting in the wake",
            f"{number(wake['cost per step'], 4)}, {number(found['times cheaper'], 1)} times cheaper",
            f"{number(wake['cost per step after 50'], 4)}, "
            f"{number(found['times cheaper after 50 steps'], 1)} times cheaper",
            wake["whole episodes"],
        ],
    ]
    return {
        "drafting-pays": table(
            ("controller", "cost per action", "cost per action after the first 50", "complete episodes"), rows
        ),
        "drafting-pays.station": number(free["cost per step"], 2),
    }


def _bullet() -> dict[str, str]:
    lines = (RESULTS / "bullet_peer.md").read_text(encoding="utf-8").splitlines()
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    heads, _, *body = rows
    columns = {head: [row[place] for row in body] for place, head in enumerate(heads)}
    return {
        f"bullet.{short}": f"{max(map(float, columns[head])):.1e}".replace("e-0", "e-")
        for short, head in (("observations", "observations differ by"), ("terms", "terms of the reward differ by"))
    }
