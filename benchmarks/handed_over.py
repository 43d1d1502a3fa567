"""What is handed over works: `python -m benchmarks.handed_over` prints tables, and fails where one has a wrong row.

1. For each checker, target and kind of failure, what repro.py has to say and what it says, in a fresh interpreter that
   holds only what its first lines name. Engines that run are run by a stand-in for TensorRT and CUDA: no GPU has run
   that. Builds with TensorRT for RTX need it installed, and are left out where it is not.
2. Hostile strings as names of nodes and tensors, messages of a check and paths: text stays text in every artifact. A
   row for each artifact; the tests hold what is looked at.
3. `python -m benchmarks.handed_over TABLE`: the bundles of test runs, each unpacked elsewhere. The tests write that
   table where WINNOW_BUNDLES names a file: `WINNOW_BUNDLES=TABLE python -m pytest tests`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.report import handed
from tests.report.handed import Case, Fresh
from tests.report.hostile import STRINGS

ROOT = Path(__file__).parents[1]
_RTX = "tensorrt_rtx_bindings"


def cases(folder: Path) -> list[tuple[Case, int]]:
    """Run all cases; return each with what its repro.py says."""
    fresh, tools = Fresh(folder / "fresh"), folder / "tools"
    tools.mkdir()
    wanted: list[tuple[str | None, Case]] = [(None, case) for case in handed.cases(tools)]
    if importlib.util.find_spec(_RTX) is None:
        wanted = [(stub, case) for stub, case in wanted if not case.name.startswith("builds")]
    wanted += handed.engine_cases()
    return [(case, fresh.said(case, folder / str(number), stub).code) for number, (stub, case) in enumerate(wanted)]


def artifacts() -> list[tuple[str, str]]:
    """Return what the tests of hostile strings say, by artifact."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/report/test_hostile.py",
        "-q",
        "-rA",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    told: dict[str, str] = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            name = rest.partition("::")[2].partition("[")[0].partition(" ")[0].removeprefix("test_").replace("_", " ")
            told[name] = "text" if word == "PASSED" and told.get(name, "text") == "text" else "not text"
    return sorted(told.items())


def bundles(table: Path) -> tuple[Counter[int], list[str]]:
    """Return how many bundles of test runs say what, and those that do not show their failure."""
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    return Counter(row["code"] for row in rows), [f"{row['test']}: {row['text']}" for row in rows if row["code"] != 1]


def main() -> int:
    """Print the tables."""
    if sys.argv[1:]:
        counts, wrong = bundles(Path(sys.argv[1]))
        print(f"{counts.total()} bundles unpacked elsewhere: {counts[1]} show their failure,", end=" ")
        print(f"{counts[0]} do not, {counts[2]} cannot tell")
        print("\n".join(wrong))
        return int(bool(wrong))
    with tempfile.TemporaryDirectory() as folder:
        rows = cases(Path(folder))
    print(handed.table(rows))
    wrong_rows = sum(case.code != code for case, code in rows)
    print(f"\n{len(rows)} cases, {wrong_rows} wrong\n\n{len(STRINGS) + 1} hostile strings, by artifact:")
    told = artifacts()
    for name, word in told:
        print(f"| {name:<32} | {word:<8} |")
    return int(bool(wrong_rows) or not told or any(word != "text" for _, word in told))


if __name__ == "__main__":
    sys.exit(main())
