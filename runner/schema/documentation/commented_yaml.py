"""A YAML file of `conf/` with its comments: what is said at its head, and above each key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: a comment as long as this goes on in the next line; a shorter one ends there
_FULL_LINE = 110
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_]\w*):(\s|$)")


@dataclass
class CommentedFile:
    """What a file says: the lines at its head, values by key, comments by dotted key; and the schema it stands on."""

    head: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    schema: type | None = None


def read_commented(path: Traversable) -> CommentedFile:
    """Return what a YAML file holds and says; one that is not valid, a package's, holds nothing."""
    text = path.read_text(encoding="utf-8")
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError:
        values = None
    head: list[str] = []
    comments: dict[str, str] = {}
    above: list[str] = []
    inside: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# ").rstrip())
            continue
        head = head or [one for one in above if not one.startswith("@package")] or [""]
        match = _KEY.match(line)
        if match:
            depth = len(match["indent"])
            inside = [*((at, name) for at, name in inside if at < depth), (depth, match["key"])]
            if above:
                comments[".".join(name for _, name in inside)] = joined(above)
        above = []
    return CommentedFile(tuple(head or above), values if isinstance(values, dict) else {}, comments)


def joined(lines: Sequence[str]) -> str:
    """Return a comment with the lines that mean something, and not those that are only full."""
    said = ""
    full = True
    for line in lines:
        said += f"{'' if not said else ' ' if full else chr(10)}{line}"
        full = len(line) >= _FULL_LINE
    return said
