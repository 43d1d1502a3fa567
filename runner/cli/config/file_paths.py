"""Paths in a configuration file start at the file's folder, wherever the user stands.

What commands run, get and leave behind (`checker.command`, `checker.place`, `artifacts.paths`) starts where they run,
which a file may say: ``cwd: .`` is the file's own folder. Earlier versions read all paths from where the user stood: of
what is there and not beside the file, that is still taken, and a line says so.
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
from runner.errors import UsageError
from runner.schema.option_files import escape_interpolation
from runner.schema.settings import PathUse

#: these start where commands run
_OF_COMMANDS = PathUse.PATTERN | PathUse.FOR_CHECK


def from_file(value: Any, key: str, file: Path, told: set[str] | None = None) -> Any:
    """Return what ``file`` holds at ``key`` with its paths absolute; nothing changes where the user stands beside it.

    ``${`` in the path of something that exists is no interpolation. ``told``: lines that were said already.
    """
    if isinstance(value, Mapping):
        return {
            name: from_file(part, f"{key}.{name}" if key else str(name), file, told) for name, part in value.items()
        }
    if isinstance(value, list):
        return [from_file(part, key, file, told) for part in value]
    use = use_of(key)
    if not isinstance(value, str) or not use or not value or file_choices.is_glob(key, value):  # that is refused
        return value
    folder = _folder_for(use, key, value, file, told)
    if folder is None:
        return escape_interpolation(value) if exists(value) else value
    folder, value = climbed(folder, value)
    path = str(folder / value)
    return escape_interpolation(path) if exists(path) else f"{escape_interpolation(str(folder))}/{value}"


def parameters_from_file(params: Mapping[Any, Any], file: Path, told: set[str]) -> dict[Any, Any]:
    """Return the parameters of a sweep that ``file`` holds: files for each pattern, paths absolute."""
    return {key: _choices(str(key), text, file, told) for key, text in params.items()}


def _choices(key: str, text: Any, file: Path, told: set[str]) -> Any:
    if file_choices.is_glob(key, text):
        return _matching(key, text, file, told)
    override = parse(f"{key}={text}") if isinstance(text, str) and use_of(key) else None
    if override is None:
        return text
    asked = override.value()
    listed = asked.list if isinstance(asked, ChoiceSweep) else [asked]
    names = [one.text if isinstance(one, QuotedString) else one for one in listed]
    paths = [from_file(name, key, file, told) for name in names]
    if paths == names or not all(isinstance(path, str) for path in paths):
        return text
    return ",".join(path if means_itself(key, path) else quote(path) for path in paths)


def _matching(key: str, pattern: str, file: Path, told: set[str]) -> str:
    folder = file.parent.resolve()
    if folder == Path.cwd():
        return file_choices.choices(key, pattern)
    try:
        return file_choices.choices(key, pattern, folder)
    except UsageError as error:
        try:
            found = file_choices.choices(key, pattern)
        except UsageError:
            raise error from None
        _tell(key, pattern, file, told)
        return found


def _folder_for(use: PathUse, key: str, text: str, file: Path, told: set[str] | None) -> Path | None:
    """Return the folder that a path in a file starts at; None: it stays as it is."""
    folder = file.parent.resolve()
    if use & _OF_COMMANDS or text[0] in "~/" or folder == Path.cwd() or is_by_name(use, text, folder):
        return None
    there = exists(str(folder / text))
    if text.startswith("${") and not there:  # what that is, and where it starts, is not known yet
        return None
    if PathUse.WRITE not in use and not there and exists(text):
        _tell(key, text, file, told)
        return None
    return folder


def _tell(key: str, text: str, file: Path, told: set[str] | None) -> None:
    line = (
        f"winnow: {file}: {key}={text} is taken from where you stand. Paths in a file start at its folder now, where "
        f"there is no such thing: write it as it is seen from {file.parent.resolve()}"
    )
    if told is None or line not in told:
        say(line, error=True)
        (told if told is not None else set()).add(line)


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
