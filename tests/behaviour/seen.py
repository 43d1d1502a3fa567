"""The text of a golden run: what differs from machine to machine and from run to run has a placeholder in it."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.harness import ROOT

RESULT = jsonschema.Draft202012Validator(json.loads((ROOT / "runner" / "report" / "result_schema.json").read_text()))
"""What every result.json is held to."""
#: keys of result.json that say when, where and with what a run was made
_NOT_SHOWN = ("seconds", "peak_rss_mb", "context", "versions", "input_model")
_LEFT_OUT = ("seconds", "seconds_each", "_ms", "rss_mb", "latency", "layout")
"""Ends of keys further inside: how long something took, what it took, and a level that older releases do not have."""
_DIGITS = 3
"""Significant digits of a number that was measured."""
_PACKAGES = ("onnxruntime", "onnx", "numpy", "ml_dtypes", "sympy", "tensorrt-rtx-cu13-bindings", "hydra-core")
_TIMES = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[ /T]\d\d[-:]\d\d[-:]\d\d[-.,\d]*"), "DATE"),
    (re.compile(r"\b\d+(\.\d+)?( to \d+(\.\d+)?)? (s|min|ms|h)\b( \d+ (s|min)\b)?"), "N s"),
    (re.compile(r"\btime +folder\b"), "time  folder"),
    (re.compile(r"Error parsing message[^)]*\)"), "Error parsing message)"),
    (re.compile(r"\((under |about |up to |over )?N s( (to|or) [^)]*)?( at most)?\)"), "(N s)"),
    (re.compile(r"  +\d+\.\d(?=  )"), "  N"),
    (re.compile(r"as fast as before|[\d.]+ times the time"), "N times the time"),
    (re.compile(r"^(\| `steps/.*\|) [\d.]+ \|$", re.MULTILINE), r"\1 N |"),
    (re.compile(r"seconds \| .*"), "seconds |"),
    (re.compile(r"\b\d[\d.,]* (MiB|GiB|MB|GB|kB)\b"), "N MiB"),
    (re.compile(r"\b\d\d-\d\d \d\d:\d\d\b"), "DATE"),
    (re.compile(r"\b[0-9a-f]{16,64}\b|(?<=kept-)[0-9a-f]{12}\b"), "HASH"),
    (re.compile(r"\bpid \d+|process \d{2,}"), "process N"),
    (re.compile(r"winnow-[a-z0-9_]{8}\b"), "winnow-TEMPORARY"),
)
_MARKS = re.compile(r"^ +[~^]+ *\n", re.MULTILINE)
"""What newer releases of Python mark in a traceback."""
_MEASURED = re.compile(r"(?<![\w.-])-?\d+\.\d+(e[+-]?\d+)?(?![\w.]*\w)")


def plain(text: str, here: Path) -> str:
    """Return a text without paths of this machine, versions, times, and digits that nobody can rely on."""
    places = {str(here): "HERE", sys.executable: "PYTHON", str(ROOT): "WINNOW"}
    # a report calls the home ~, and the temporary folder $TMPDIR: this clone may lie in either
    for start, short in ((str(Path.home()), "~"), (tempfile.gettempdir(), "$TMPDIR")):
        places |= {
            short + path.removeprefix(start): name for path, name in places.items() if path.startswith(f"{start}/")
        }
    for path, name in sorted(places.items(), key=lambda one: -len(one[0])):
        text = text.replace(path, name)
    for version in sorted(_versions(), key=len, reverse=True):
        text = re.sub(rf"(?<![\d.]){re.escape(version)}(?![\d.]*\d)", "VERSION", text)
    text = _MARKS.sub("", text)
    for pattern, name in _TIMES:
        text = pattern.sub(name, text)
    return _MEASURED.sub(lambda found: _shortened(found[0]), text)


def _versions() -> Iterator[str]:
    yield platform.python_version()
    yield platform.platform()
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield importlib.metadata.version(name)


def _shortened(number: str) -> str:
    """Return a number with few digits; one that has few as it is, like the 2.0 of a version, is not touched."""
    digits = number.partition("e")[0].lstrip("-0.").replace(".", "")
    return _rounded(float(number)) if len(digits) > _DIGITS else number


def _rounded(number: float) -> str:
    return f"{number:.{_DIGITS}g}"


def result(folder: Path, here: Path) -> str:
    """Return what result.json says, in YAML: without what is empty, and without when and where."""
    data = json.loads((folder / "result.json").read_text())
    kept = _filled({key: value for key, value in data.items() if key not in _NOT_SHOWN}, here)
    return yaml.safe_dump(kept, sort_keys=False, width=100_000, allow_unicode=True).rstrip()


def _filled(value: Any, here: Path) -> Any:
    """Return a value without what is empty in it, and with its texts plain."""
    if isinstance(value, Mapping):
        return {
            plain(key, here): held
            for key, one in value.items()
            if (held := _filled(one, here)) not in (None, "", [], {}) and not key.endswith(_LEFT_OUT)
        }
    if isinstance(value, list):
        return [_filled(one, here) for one in value]
    if isinstance(value, str):
        return plain(value, here)
    return float(_rounded(value)) if isinstance(value, float) else value


def journal(folder: Path, here: Path) -> str:
    """Return the verdicts that a run paid for, in the order of their checks: phase, label, what came of it."""
    entries = [
        json.loads(line)
        for path in sorted(folder.rglob("journal*.jsonl"))
        for line in path.read_text().splitlines()
        if '"verdict"' in line
    ]
    entries.sort(key=lambda one: (one["writer"], one["iteration"], one["attempt"]))
    return "\n".join(plain(_check(one), here) for one in entries)


def _check(entry: Mapping[str, Any]) -> str:
    verdict = entry["verdict"]
    signature = verdict["signature"]
    said = [verdict["outcome"], *([f"{signature[0]}: {signature[1]}"] if signature else [])]
    nodes = f"nodes {entry['ranges']}" if entry.get("ranges") else "nothing"
    return f"{entry['phase']} | {entry['label']} | {nodes} | {', '.join(said)}"


def files(folder: Path) -> str:
    """Return the names of the files that a run leaves; those of one folder in one line."""
    kept: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() or path.is_symlink():
            name = re.sub(r"[0-9a-f]{12,}", "HASH", path.name)
            place = re.sub(r"(?<=checks/)\d+|[0-9a-f]{12,}", "*", path.parent.relative_to(folder).as_posix())
            names = kept.setdefault(place, [])
            names += [name] if name not in names else []
    bundle = folder / "bundle.zip"
    if bundle.is_file():
        with zipfile.ZipFile(bundle) as packed:
            kept["bundle.zip:"] = sorted(packed.namelist())
    return "\n".join(f"{place}/ {' '.join(sorted(names))}".removeprefix("./ ") for place, names in sorted(kept.items()))
