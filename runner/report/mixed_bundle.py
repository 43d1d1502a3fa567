"""What bundle.zip holds of a precision run: what was found, and how the same mixed model is made of the original.

The mixed model has all weights of the original, so neither goes along (docs/adr/0042). What does is a configuration
with the raised nodes in it: whoever has the original makes the same model of it, in a few checks and without a search.
"""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from runner.checkers.command.template import Template
from runner.program_name import SCRIPTS
from runner.report import bundle_zip, check_files
from runner.report.replay import GROUPS, replay_text
from runner.report.summary import Summary
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings
from runner.schema.settings import PathUse, map_paths

_PARTS = (*GROUPS, "cut", "sanitize")
"""The sections that decide what the model becomes, and how it is judged."""
_FILES = ("layers", "plot", "curve_plot")
"""Where `Summary.precision` names the files that REPORT.md shows."""


def contents(settings: Settings, folder: Path, summary: Summary, cwd: Path) -> bundle_zip.Contents:
    """Return what goes in besides what is written for it: the pictures of the report, and files of the check."""
    told = summary.precision or {}
    return bundle_zip.contents(folder, [name for key in _FILES if (name := told.get(key))], settings.checker, cwd)


def configuration(settings: Settings, summary: Summary, cwd: Path, held: bundle_zip.Contents) -> str:
    """Return the text of ``mixed.yaml``; paths start at its folder, and what it names of the user's lies there by name.

    The check is the copy in the archive. Values of ``checker.env`` stay with the user; an interpreter is the reader's.
    """
    named = check_files.handed_on(settings.checker, cwd).items()
    copies = {path: name for path, name in named if f"{check_files.FOLDER}/{name}" in held.files}
    beside: list[str] = []

    def renamed(use: PathUse, value: str) -> str:
        path = cwd / Path(value).expanduser()
        if path in copies:
            return f"{check_files.FOLDER}/{copies[path]}"
        if not Path(value).is_absolute():  # a library by the name of its package
            return value
        if PathUse.READ in use and PathUse.PROGRAM not in use:
            beside.append(path.name)
        return path.name

    shown = map_paths(settings, renamed)
    config = {name: dataclasses.asdict(getattr(shown, name)) for name in _PARTS}
    for group in ("checker", "target", "reference"):
        config[group] |= {"python": None} if "python" in config[group] else {}
    checker = settings.checker
    if isinstance(checker, CommandChecker):
        words = check_files.moved({"command": _words(checker)}, checker, cwd, copies)["command"]
        config["checker"] |= {"command": [word.replace("{python}", "python") for word in words], "env": {}}  # type: ignore[attr-defined]
    config["strategy"]["exclude"] = _raised(config["strategy"]["exclude"], summary.precision or {})
    choices = {group: _name(config[group]["name"]) for group in GROUPS}
    choices["strategy"] = type(settings.strategy).name
    content = {"model": shown.model, **config, "cwd": check_files.FOLDER if copies else "."}
    missing = [*dict.fromkeys(beside), *held.not_taken, *held.left_out]
    said = [
        f"{SCRIPTS[0]} {bundle_zip.MIXED_YAML}",
        "makes the mixed-precision model of the original, and checks it; the raised nodes are in strategy.exclude",
        "exit code 4 (nothing_to_find): no other node has to be raised, as is to be expected; the model is mixed.onnx",
        f"to be put beside this file first: {', '.join(missing)}" if missing else "",
        f"to be set in the environment first: {', '.join(checker.env)}"
        if isinstance(checker, CommandChecker) and checker.env
        else "",
    ]
    return replay_text(filter(None, said), content, choices)


def _words(checker: CommandChecker) -> list[str]:

    return list(Template(checker.command, Path(), {}).words)


def _raised(excluded: Sequence[str], told: Mapping[str, Any]) -> list[str]:
    """Return what stays high: what the user said, and each raised node by its name, in which no letter is a pattern."""
    nodes = (glob.escape(one["node"]) for one in told.get("selected", ()))
    return [*dict.fromkeys([*excluded, *nodes])]


def _name(choice: Any) -> str:
    return str(choice.value if isinstance(choice, Enum) else choice)
