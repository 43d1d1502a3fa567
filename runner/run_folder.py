"""The file that makes a folder a run's, and what in such a folder is the run's own.

It is written before anything else, and lists what the run left when it ended. Only what is in this list, or was written
by a run that was killed, and has a name that runs write, is ever removed or written over. The folder may come from
anywhere, so its list is believed only for plain names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from runner.files import json_of, write_text

NAME = ".winnow.json"
FORMAT = 1
STEPS = "steps"
"""The folder with the steps of a triage, each a run's."""
INPUTS = "inputs.yaml"
"""The file in which a user says what inputs the model takes, where the reference refuses those that were made up."""
#: the models that are handed over, without `.onnx`
REDUCED, MIN_GOOD, MIXED, WORKAROUND = "reduced", "min_good", "mixed", "workaround"
#: a float model with names for all nodes, and what ONNX Runtime's tools made of it
FLOAT, QUANTIZED = "float", "quantized"
#: the model that keeps high what buys most within a budget
WITHIN = "within_budget"
_MODELS = (REDUCED, "rounded", MIN_GOOD, MIXED, f"{WORKAROUND}*", FLOAT, QUANTIZED, WITHIN)
#: the names that a run gives at the top of its folder, as patterns
OF_A_RUN = (
    *(
        "given",
        "inputs",
        "values",
        "target",
        "workers",
        "store",
        "sanitized",
        "checks",
        "artifacts",
        "answers",
        "caches",
    ),
    *(f"{name}.{kind}" for name in _MODELS for kind in ("onnx", "onnx.data*", "tactics.json")),
    *("test_data_set_[0-9]*", "journal.jsonl", "journal.claims", "journal-*.jsonl", "*.timing_cache"),
    *("result.json", "ended.json", "REPORT.md", "report.html", "bundle.zip", "repro.py"),
    *("replay.yaml", INPUTS, "layers.json", "layers.svg", "curve.svg"),
    *("quantize.py", "quantize.json", "calibration.npz", "partners.json"),
    *("layerwise.csv", "layerwise.json"),
    *("placed.json", ".hydra", "winnow.log", STEPS, "kept", "bugs.md"),
)
#: those of a sweep; its jobs are runs in folders of their own
OF_A_SWEEP = (
    "multirun.yaml",
    "sweep.json",
    "sweep.md",
    "report.html",
    "jobs.jsonl",
    "journal",
    ".submitit",
    "bugs",
    "bugs-[0-9]*",
    "bugs.md",
)
#: what tells that a folder is a sweep's
_OF_A_SWEEP_ALONE = ("multirun.yaml", "sweep.json", "jobs.jsonl")
#: what is written before a run has its folder, and after it has given it back
_AROUND = frozenset({".hydra", "winnow.log", "result.json", "ended.json"})
#: what is written into below the top, as patterns
_IN_A_RUN = (
    "artifacts/index.jsonl",
    "artifacts/[bdgu]*",
    ".hydra/*.yaml",
    "workers/call-*",
    "caches/*",
    f"{STEPS}/*",
    f"{STEPS}/*/*",
)
_IN_A_SWEEP = ("journal/*",)
# with the numbers of a process and a thread, or weights beside a model
_PART = re.compile(r".+\.(\d+\.\d+|[0-9a-f]{32})\.part|weights\.bin\.part|.+\.onnx\.data.*\.part")


@dataclass(frozen=True)
class Marker:
    """``running``: until the run ends; for ever, where it was killed. ``wrote``: the names that are a run's own."""

    running: bool
    wrote: frozenset[str] = frozenset()


def read(folder: Path) -> Marker | None:
    """Return the marker of a run's or a sweep's folder, None where there is none that can be read."""
    found: Any = None if (folder / NAME).is_symlink() else json_of(folder / NAME)
    try:
        if found["winnow"] != FORMAT:
            return None
        wrote = frozenset(name for name in found["wrote"] if isinstance(name, str) and Path(name).name == name)
        return Marker(bool(found["running"]), wrote)
    except (KeyError, TypeError):
        return None


def write(folder: Path, marker: Marker) -> None:
    """Write the marker. Raises OSError where that is impossible."""
    content = {"winnow": FORMAT, "running": marker.running, "wrote": sorted(marker.wrote)}
    write_text(folder / NAME, json.dumps(content) + "\n")


def is_sweep(folder: Path) -> bool:
    """Whether a sweep has written into ``folder``."""
    return any((folder / name).exists() for name in _OF_A_SWEEP_ALONE)


def named(folder: Path, patterns: Iterable[str]) -> list[str]:
    """Return what lies in ``folder`` under a name that one of the patterns describes."""
    return sorted(name for name in present(folder) if any(fnmatchcase(name, pattern) for pattern in patterns))


def present(folder: Path) -> list[str]:
    """Return the names of all that lies in ``folder``; nothing where there is none."""
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def own(folder: Path) -> frozenset[str]:
    """Return the names in ``folder`` that are a run's."""
    marker = read(folder)
    if marker is None:
        return frozenset()
    there = named(folder, OF_A_RUN)
    more = there if marker.running else (name for name in there if name in _AROUND)
    return marker.wrote.union(more).intersection(present(folder))


def drop_parts(folder: Path, names: Iterable[str]) -> None:
    """Remove the files in ``names`` of ``folder`` that a run was about to write when it was killed."""
    within = (path for name in names if not (folder / name).is_symlink() for path in (folder / name).rglob("*.part"))
    for path in (*folder.glob("*.part"), *folder.glob(".*.part"), *within):
        if _PART.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


def strange(folder: Path, *, sweep: bool = False) -> list[str]:
    """Return what is neither file nor folder where a run (a sweep) writes: a link, or a pipe that would be waited for.

    A folder that was handed over may hold them, and a link leads elsewhere.
    """
    tops = (folder / name for name in named(folder, OF_A_SWEEP if sweep else OF_A_RUN))
    within = (path for pattern in (_IN_A_SWEEP if sweep else _IN_A_RUN) for path in folder.glob(pattern))
    places = (*tops, *within)
    return [
        path.relative_to(folder).as_posix()
        for path in places
        if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir()))
    ]
