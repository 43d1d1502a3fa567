"""Paths and choices of files as Hydra takes them: relative to their file, expanded, quoted.

Paths in a configuration file start at the file's folder, wherever the user stands.

What commands run, get and leave behind (`checker.command`, `checker.place`, `artifacts.paths`) starts where they run,
which a file may say: ``cwd: .`` is the file's own folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, Quote, QuotedString
from hydra.errors import HydraException

from runner.cli.paths import ANY_SECTION, SECTIONS, climbed, exists, is_by_name, use_of
from runner.cli.terminal import say
from runner.exit_codes import UsageError
from runner.schema.installed_choices import escape_interpolation
from runner.schema.settings import PathUse

# Write any text as a Hydra value that means just this text.
#
# Two grammars read a value: Hydra's overrides (quotes, commas, brackets, functions) and then OmegaConf's interpolation
# (``${..}``). A file name may hold all that either of them gives a meaning to.


def parse(override: str) -> Override | None:
    """Return what Hydra makes of ``key=value``, or None where its grammar refuses it."""
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


def means_itself(key: str, text: str) -> bool:
    """Whether ``key=text`` already gives just the string ``text``."""
    if "${" in text:
        return False
    override = parse(f"{key}={text}")
    return override is not None and not override.is_sweep_override() and override.value() == text


def quote(text: str) -> str:
    """Return ``text`` as a quoted value that Hydra and OmegaConf read back as ``text``."""
    return QuotedString(text=escape_interpolation(text), quote=Quote.single).with_quotes()


# ``model=glob(failures/*.onnx)`` in a sweep: the files that are there, as choices.
#
# Hydra's own glob is about the options of a group; of a key that holds a path it would make no choice at all.

_FUNCTION = "glob("
_ONE_OF_MANY = re.compile(r"\),|,\s*glob\(")


def is_glob(key: object, text: object) -> bool:
    """Whether a value asks for the files that match a pattern."""
    if not isinstance(text, str) or not (text.startswith(_FUNCTION) and text.endswith(")")):
        return False
    use = use_of(str(key))
    return bool(use) and PathUse.PATTERN not in use


def refuse_among_others(key: str, text: str) -> None:
    """Raise UsageError for a pattern that is one choice of several, which Hydra does not read."""
    if _FUNCTION in text and _ONE_OF_MANY.search(text):
        raise UsageError(f"{key}={text}: a glob stands alone. Several patterns are one: '{key}=glob([a*.onnx,b.onnx])'")


def refuse_in_file(key: str, text: str) -> None:
    """Raise UsageError for a pattern that is the value of a key in a file: a file's choices stand elsewhere."""
    if is_glob(key, text):
        raise UsageError(
            f"{key}: {text} is a pattern, and the value of a key is one file. On the command line: -m '{key}={text}'; "
            f"in a file, which then needs -m: hydra: {{sweeper: {{params: {{{key}: {text}}}}}}}"
        )


def choices(key: str, text: str, folder: Path | None = None) -> str:
    """Return what is there as choices in Hydra's grammar, in order. Raises UsageError where nothing is.

    ``folder``: where the pattern starts; None: where the user stands.
    """
    override = parse(f"{key}={text}")
    asked = override.value() if override else None
    if override and not isinstance(asked, Glob):
        refuse_among_others(key, text)
    # brackets that are part of a pattern are none that Hydra reads
    pattern = asked if isinstance(asked, Glob) else Glob(include=[text[len(_FUNCTION) : -1]])
    found = _found(key, pattern, folder)
    if not found:
        raise UsageError(
            f"{key}={text}: nothing is there that matches (looked from {folder or Path.cwd()}). A pattern is as in a "
            f"shell: -m '{key}=glob(failures/*.onnx)'"
        )
    return ",".join(map(quote, sorted(found)))


def _found(key: str, pattern: Glob, folder: Path | None) -> set[str]:
    names = {
        name
        for one in pattern.include
        for name in glob(str(Path(one).expanduser()), root_dir=folder, recursive=True)  # noqa: PTH207 - also /..
        if not any(fnmatchcase(name, excluded) for excluded in pattern.exclude)
    }
    paths = {str(Path(*climbed(folder, name))) if folder else name for name in names}
    return {path for path in paths if Path(path).is_file()} if PathUse.MODEL in use_of(key) else paths


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
    if not isinstance(value, str) or not use or not value or is_glob(key, value):  # that is refused
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
    if is_glob(key, text):
        folder = file.parent.resolve()
        return choices(key, text, None if folder == Path.cwd() else folder)
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
