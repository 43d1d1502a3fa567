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
from runner.cli.config.paths import ANY_SECTION, SECTIONS, climbed, exists, is_by_name, use_of
from runner.cli.config.quoting import means_itself, parse, quote
from runner.cli.terminal import say
from runner.schema.option_files import escape_interpolation
from runner.schema.settings import PathUse

#: these start where commands run
_OF_COMMANDS = PathUse.PATTERN | PathUse.FOR_CHECK


def content_from_file(content: Mapping[str, Any], file: Path, place: str = "") -> dict[str, Any]:
    """Return all that ``file`` holds with its paths absolute.

    ``place``: the section that it becomes; of a file outside the groups that is known only where it is included.
    """
    known = not place or place.partition(".")[0] in SECTIONS
    keys = {name: f"{place}.{name}".lstrip(".") if known else f"{ANY_SECTION}.{name}" for name in content}
    whole = {name for name, value in content.items() if not known and name in SECTIONS and isinstance(value, Mapping)}
    return {name: from_file(value, name if name in whole else keys[name], file) for name, value in content.items()}


def from_file(value: Any, key: str, file: Path) -> Any:
    """Return what ``file`` holds at ``key`` with its paths absolute; nothing changes where the user stands beside it.

    Of a sweep over files, patterns are what is there. ``${`` in the path of something that exists is no interpolation.
    """
    folder = file.parent.resolve()
    if isinstance(value, Mapping):
        if key == "hydra.sweeper.params":
            return parameters_from_file(value, file)
        return {name: from_file(part, f"{key}.{name}" if key else str(name), file) for name, part in value.items()}
    if isinstance(value, list):
        return [from_file(part, key, file) for part in value]
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
