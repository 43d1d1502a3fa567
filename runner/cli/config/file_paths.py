"""Paths in a configuration file start at the file's folder, wherever the user stands.

What commands run, get and leave behind (`checker.command`, `checker.place`, `artifacts.paths`) starts where they run,
which a file may say: ``cwd: .`` is the file's own folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, QuotedString

from runner.cli.config import file_choices
from runner.cli.config.paths import climbed, exists, is_by_name, use_of
from runner.cli.config.quoting import means_itself, parse, quote
from runner.cli.terminal import say
from runner.schema.option_files import escape_interpolation
from runner.schema.settings import PathUse

#: these start where commands run
_OF_COMMANDS = PathUse.PATTERN | PathUse.FOR_CHECK


def from_file(value: Any, key: str, file: Path) -> Any:
    """Return what ``file`` holds at ``key`` with its paths absolute; nothing changes where the user stands beside it.

    ``${`` in the path of something that exists is no interpolation.
    """
    folder = file.parent.resolve()
    return _mapped(value, key, folder)


def _mapped(value: Any, key: str, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return {name: _mapped(part, f"{key}.{name}" if key else str(name), folder) for name, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, key, folder) for part in value]
    use = use_of(key)
    if not isinstance(value, str) or not use or not value or file_choices.is_glob(key, value):  # that is refused
        return value
    fixed = use & _OF_COMMANDS or value[0] in "~/" or folder == Path.cwd() or is_by_name(use, value, folder)
    # what begins with an interpolation may start anywhere
    if fixed or (value.startswith("${") and not exists(str(folder / value))):
        return escape_interpolation(value) if exists(value) else value
    above, value = climbed(folder, value)
    path = str(above / value)
    return escape_interpolation(path) if exists(path) else f"{escape_interpolation(str(above))}/{value}"


def parameters_from_file(params: Mapping[Any, Any], file: Path) -> dict[Any, Any]:
    """Return the parameters of a sweep that ``file`` holds: files for each pattern, paths absolute."""
    return {key: _choices(str(key), text, file) for key, text in params.items()}


def _choices(key: str, text: Any, file: Path) -> Any:
    if file_choices.is_glob(key, text):
        folder = file.parent.resolve()
        return file_choices.choices(key, text, None if folder == Path.cwd() else folder)
    override = parse(f"{key}={text}") if isinstance(text, str) and use_of(key) else None
    if override is None:
        return text
    asked = override.value()
    listed = asked.list if isinstance(asked, ChoiceSweep) else [asked]
    names = [one.text if isinstance(one, QuotedString) else one for one in listed]
    paths = [from_file(name, key, file) for name in names]
    if paths == names or not all(isinstance(path, str) for path in paths):
        return text
    return ",".join(path if means_itself(key, path) else quote(path) for path in paths)


def tell_of_commands(content: Mapping[str, Any], file: Path) -> None:
    """Say of a command in ``file`` whose script lies beside the file, and not where commands run, how it is found."""
    checker, folder = content.get("checker"), file.parent.resolve()
    command = checker.get("command") if isinstance(checker, Mapping) else None
    if not command or content.get("cwd") or folder == Path.cwd():
        return
    words = command if isinstance(command, list) else str(command).split()
    beside = [word for word in map(str, words) if "{" not in word and not exists(word) and (folder / word).is_file()]
    if beside:
        say(
            f"winnow: {file}: checker.command: {beside[0]} lies beside the file, and commands run where you stand. "
            "cwd: . in the file has them run in its folder",
            error=True,
        )
