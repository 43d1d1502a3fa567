"""How a failure is reproduced, in a report: repro.py whole where it stands alone and is short, else its heart."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath

from runner.report.markup import block, code, folded, section, text
from runner.report.repro.write import REPRO_NAME, Repro

MOST_LINES = 130
_MOST_SHOWN = 20
_MOST_SCRIPTS = 3
_LANGUAGES = {".py": "python", ".sh": "sh", ".bash": "sh"}
_HEART = ("target", "judge", "reference", "write", "load")
"""The functions that say what is run on what, in the order in which they are worth room."""


def repro_section(repro: Repro, zipped: str = "", check: Mapping[str, str] | None = None, missing: str = "") -> str:
    """Return the section; "" without a script.

    ``zipped``: the archive that it lies in, "" without one, and what is ``missing`` there. ``check``: the user's
    scripts, by their names.
    """
    source = repro.source.strip("\n")
    if not source:
        return ""
    script, told = REPRO_NAME, "Its exit status is 1 where the failure shows"
    if repro.alone and source.count("\n") < MOST_LINES:
        said = f"{script} stands alone: run `python {script}`. {told}."
        return section("To reproduce", f"{said}\n\n{folded(script, block(source, 'python'))}")
    how = f"Unzip {zipped} and run `python {zipped.removesuffix('.zip')}/{script}`" if zipped else f"Run `{script}`"
    lacks = f"{zipped} is not whole: {text(missing)}. Put what is missing beside {script} first." if missing else ""
    parts = [f"{how}. {told}.", *filter(None, (lacks,))]
    if not check:
        parts += ["The part of it that runs the model:", block(heart(source), "python")]
    for name, lines in [*(check or {}).items()][:_MOST_SCRIPTS]:
        parts += [f"It runs {code(name)}:", _script(lines, PurePosixPath(name).suffix)]
    return section("To reproduce", "\n\n".join(parts))


def _script(source: str, suffix: str) -> str:
    """Return a script: whole if it is short, else its first lines."""
    lines = source.strip("\n").splitlines()
    if len(lines) <= _MOST_SHOWN:
        return block("\n".join(lines), _LANGUAGES.get(suffix, ""))
    if len(lines) <= MOST_LINES:
        return folded(f"{len(lines)} lines", block("\n".join(lines), _LANGUAGES.get(suffix, "")))
    return block("\n".join([*lines[: _MOST_SHOWN - 1], "..."]), _LANGUAGES.get(suffix, ""))


def heart(source: str) -> str:
    """Return the lines of a script that say what is run on what: at most so many, whole functions first."""
    lines = source.splitlines()
    found = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    parts: list[list[str]] = []
    for name in (name for name in _HEART if name in found):
        node = found[name]
        part, room = lines[node.lineno - 1 : node.end_lineno], _MOST_SHOWN - sum(map(len, parts))
        if len(part) > room:
            part = [*part[: room - 1], "    ..."] if room > 5 or not parts else []
        parts += [part] if part else []
    return "\n\n".join("\n".join(part) for part in parts) or "\n".join(lines[:_MOST_SHOWN])
