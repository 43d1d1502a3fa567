"""A stand-in until the key reference is merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from runner.schema.register import SCHEMAS, register
from runner.schema.root import Settings
from runner.schema.settings import PathUse


@dataclass(frozen=True)
class Key:
    """A key, as the options that mean the same by it have it."""

    name: str
    group: str
    options: tuple[str, ...]
    type: str
    defaults: Mapping[str, str]
    choices: tuple[str, ...]
    least: float | None
    most: float | None
    text: str
    path: PathUse | None


@dataclass(frozen=True)
class Option:
    """An option of a group."""

    group: str
    name: str
    text: str
    example: str


def keys() -> tuple[Key, ...]:
    """Return all keys."""
    register()
    found: dict[str, Key] = {}
    hints = get_type_hints(Settings)
    for item in fields(Settings):
        classes: list[tuple[str, Any]] = list(SCHEMAS.get(item.name, {}).items())
        if not classes and is_dataclass(hints[item.name]):
            classes = [("", hints[item.name])]
        for _, kind in classes:
            for one in fields(kind):
                name = f"{item.name}.{one.name}"
                found[name] = Key(name, item.name, (), "text", {"": "null"}, (), None, None, "A stand-in.", None)
        if not classes:
            found[item.name] = Key(item.name, "", (), "text", {"": "null"}, (), None, None, "A stand-in.", None)
    return tuple(found.values())


def options() -> tuple[Option, ...]:
    """Return all options."""
    return tuple(Option(group, name, "A stand-in.", "") for group in SCHEMAS for name in SCHEMAS[group])


def sections() -> dict[str, str]:
    """Return what each group of keys is about."""
    return {}
