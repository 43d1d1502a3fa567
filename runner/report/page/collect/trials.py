"""The path of a search: every check in the order in which it was made, what it kept, how it ended, what it printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.artifacts.artifact_index import rows
from runner.files import inside, is_plain, read_plain
from runner.report.page.collect.run_material import RunMaterial
from runner.report.page.data import PageTrial
from runner.text import counted

MOST_TRIALS, MOST_STRETCHES = 4000, 100_000
LONGEST_LOG, LOGS = 4096, 1 << 20
"""Bytes of one check's output, and characters of all of them together."""
_LONGEST_TEXT = 400
_LARGEST = 1e15
_RANGES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")


def trials_of(folder: Path, material: RunMaterial) -> tuple[list[PageTrial], list[str]]:
    """Return the checks of a run, and what of them is left out as it is too much for a page."""
    told = sorted([*rows(material.index), *material.unlisted] if material.index else material.unlisted, key=_order)
    taken = told if len(told) <= MOST_TRIALS else [*told[: MOST_TRIALS // 2], *told[-MOST_TRIALS // 2 :]]
    left = (
        [f"{len(told) - len(taken)} of {counted(len(told), 'check')} are not shown"] if len(told) > len(taken) else []
    )
    last = len(material.graph.nodes) - 1 if material.graph and material.elements == "nodes" else None
    stretches, characters, sets, logs, found = 0, 0, 0, 0, []
    for row in taken:
        kept = _stretches(row.get("trial")) if row.get("question") in material.questions else []
        if kept and last is not None and kept[-1][1] > last:  # of another run, in a folder of the user's
            kept = []
        if stretches + len(kept) > MOST_STRETCHES:
            kept, sets = [], sets + 1
        log = _log(material.logs or folder, row.get("log"))
        if characters + len(log) > LOGS:
            log, logs = "", logs + 1
        stretches, characters = stretches + len(kept), characters + len(log)
        found.append(_trial(row, kept, log, material.bodies.get(_text(row, "question"), "")))
    left += [f"what was kept in {counted(sets, 'check')} is not shown"] if sets else []
    left += [f"the output of {counted(logs, 'check')} is not shown"] if logs else []
    return found, left


def _order(row: Mapping[str, Any]) -> float:
    return _number(row, "iteration")


def _trial(row: Mapping[str, Any], kept: list[list[int]], log: str, body: str) -> PageTrial:
    """Return a row as the page has it. ``body``: the nested graph whose nodes were kept, "" for the model itself."""
    label = _text(row, "label")
    return {
        "number": int(_number(row, "iteration")),
        "phase": _text(row, "phase"),
        "label": label if body in label else f"{body}: {label}",
        "size": int(_number(row, "elements")) or sum(last - first + 1 for first, last in _stretches(row.get("trial"))),
        "kept": kept,
        "outcome": _text(row, "outcome"),
        "seconds": _number(row, "seconds"),
        "reason": _text(row, "reason"),
        "log": log,
    }


def _number(row: Mapping[str, Any], key: str) -> float:
    """Return a number of a row that may come from anywhere."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < _LARGEST else 0.0


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _stretches(ranges: Any) -> list[list[int]]:
    """Return the stretches of a trial's text, ``0-3,7``; none of what is no such text."""
    if not isinstance(ranges, str) or not _RANGES.fullmatch(ranges):
        return []
    ends = (part.partition("-") for part in ranges.split(","))
    return [[int(first), int(last or first)] for first, _, last in ends]


def _log(folder: Path, name: Any) -> str:
    """Return what a check printed; of a long output the beginning and the end."""
    if not isinstance(name, str) or not name or (folder / name).is_symlink() or not inside(folder / name, folder):
        return ""
    path, half = folder / name, LONGEST_LOG // 2
    size = path.stat().st_size if is_plain(path) else 0
    if size <= LONGEST_LOG:
        return read_plain(path, LONGEST_LOG).decode("utf-8", "replace")
    first, last = (read_plain(path, half, start).decode("utf-8", "replace") for start in (0, size - half))
    return f"{first}\n[{size - 2 * half} bytes left out]\n{last}"
