"""``model=glob(failures/*.onnx)`` in a sweep: the files that are there, as choices.

Hydra's own glob is about the options of a group; of a key that holds a path it would make no choice at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from hydra.core.override_parser.types import Glob

from runner.cli.config.paths import climbed, use_of
from runner.cli.config.quoting import parse, quote
from runner.errors import UsageError
from runner.schema.settings import PathUse

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
        if not _any(name, pattern.exclude)
    }
    paths = {str(Path(*climbed(folder, name))) if folder else name for name in names}
    return {path for path in paths if Path(path).is_file()} if PathUse.MODEL in use_of(key) else paths


def _any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
