"""replay.yaml: the resolved configuration of a run, with the digests and versions it was run on."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from runner.files import write_text
from runner.schema.root import Settings
from runner.text import hide_environment, program_name

REPLAY_NAME = "replay.yaml"
GROUPS = ("strategy", "checker", "target", "reference", "inputs")
"""The configuration groups whose option a replay names."""
_STRATEGIES = Path(__file__).resolve().parents[2] / "conf" / "strategy"
_ABSENT = "(none)"
_LONGEST = 160
_LIKE_A_NUMBER = re.compile(r"[-+]?\.?(\d|inf|nan)", re.IGNORECASE)
_DIGEST = re.compile(r"[0-9a-f]{16,}")
# backslashes count before an interpolation only: there each must be doubled, and one more takes the interpolation away
_INTERPOLATION = re.compile(r"(\\*)\$\{")


class _Dumper(yaml.SafeDumper):
    """Plain types only; texts that another reader of YAML could take for numbers are quoted (1e-3, 0o7, 1_000)."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal parts twice: a person edits this file."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _LIKE_A_NUMBER.match(text) and text.isprintable() else None
    style = style if text.isprintable() else '"'  # where what YAML prints and a person cannot see is escaped, below
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def configuration(settings: Settings, cwd: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return all values, and the option chosen for each group.

    Paths are absolute already; commands are told to run where they ran, so that they mean the same from any folder.
    """
    config = dataclasses.asdict(settings) | {"cwd": str(cwd)}
    config.pop("recorded")
    config.pop("resume")
    choices = {group: config[group]["name"] for group in GROUPS} | {"artifacts": settings.artifacts.keep.value}
    choices["workers"] = "serial"
    if not (_STRATEGIES / f"{choices['strategy']}.yaml").is_file():  # an option of the user's own: all values are here
        choices["strategy"] = type(settings.strategy).name
    return config, choices


def write_replay(
    path: Path, config: Mapping[str, Any], choices: Mapping[str, str], recorded: Mapping[str, Any]
) -> None:
    """Write a configuration that ``winnow PATH`` runs again.

    ``config``: all resolved values in plain types. ``choices``: the option chosen for each group. ``recorded``: what
    ``drift`` compares later, such as ``{"model": sha256, "check": {file: sha256}, "versions": {package: version}}``.
    Raises OSError where it cannot be written.
    """
    command = shlex.quote(str(path))
    # a line end in a path would end the comment
    first = f"{program_name()} {command if command.isprintable() else ascii(str(path))}"
    write_text(path, replay_text([first], {**config, "recorded": recorded}, choices))


def replay_text(first: Iterable[str], config: Mapping[str, Any], choices: Mapping[str, str]) -> str:
    """Return the text of a configuration. ``first``: what its first lines say. For the others see `write_replay`."""
    # each section says on which option it stands: another choice on the command line then replaces all of it
    sections = {group: {"defaults": [option, "_self_"], **config.get(group, {})} for group, option in choices.items()}
    text = yaml.dump(
        escaped({**config, **sections}),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=120,
    )
    text = "".join(char if char.isprintable() or char == "\n" else _escape_character(char) for char in text)
    return "".join(f"# {line}\n" for line in first) + text


TYPED = "typed"
"""Where a replay's settings hold the groups of settings that are typed beside it."""
#: what of a context follows from a group of settings, besides versions
_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "strategy": ("strategy ", "subject.", "cut ", "check.", "reference", "target "),
    "model": ("model ", "subject.", "inputs ", "expected "),
    "inputs": ("inputs ", "expected "),
    "checker": ("check.",),
    "target": ("target ", "check.target"),
    "reference": ("reference", "check.reference", "expected "),
    "cut": ("cut ", "subject."),
}


def typed_groups(words: Iterable[str]) -> list[str]:
    """Return the groups of settings that overrides are about, as far as a context depends on them."""
    return sorted({word.lstrip("+~").partition("=")[0].partition(".")[0] for word in words} & {*_FOLLOWS})


def drift(recorded: Mapping[str, Any], now: Mapping[str, Any], typed: Iterable[str] = ()) -> tuple[str, ...]:
    """Name each thing that changed: ``model changed: 0123abcd.. -> 4567cdef..``, ``onnxruntime 1.30 -> 1.31``.

    Both are of the form that ``write_replay`` takes. What was not recorded (an empty ``recorded``) has not changed.
    ``typed``: groups of settings that somebody has chosen anew; what follows from these is not named.
    """
    if not recorded:
        return ()
    found = (line for name in _keys(recorded, now) for line in _change(name, recorded.get(name), now.get(name)))
    follows = tuple(prefix for group in typed for prefix in _FOLLOWS.get(group, ()))
    return tuple(line for line in found if " versions " in line or not line.startswith(follows))


def escaped(value: Any) -> Any:
    """Return plain YAML types in which no text is an interpolation to OmegaConf."""
    if isinstance(value, Enum):
        return escaped(value.value)
    if isinstance(value, Mapping):
        return {_key(name): escaped(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escaped(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    # these are the user's own interpolations, which resolve where the user runs it again
    return hide_environment(_escape(str(value)), exact=True)


def _escape(text: str) -> str:
    return _INTERPOLATION.sub(lambda match: match[1] * 2 + "\\${", text)


def _escape_character(char: str) -> str:
    """Return it as a quoted scalar of YAML holds it."""
    return f"\\u{ord(char):04X}" if ord(char) < 0x10000 else f"\\U{ord(char):08X}"


def _key(name: Any) -> Any:
    name = name.value if isinstance(name, Enum) else name
    return name if isinstance(name, (bool, int, float)) else str(name)


def _change(title: str, before: Any, after: Any) -> list[str]:
    """Name what changed; of a whole configuration (also one as JSON text) what is different in it."""
    inside, inside_now = mapping_in(before), mapping_in(after)
    if inside is not None and (inside_now is not None or not isinstance(before, str)):
        pairs = {key: (inside.get(key), (inside_now or {}).get(key)) for key in _keys(inside, inside_now or {})}
        if title == "versions":
            return [f"{key} {_short(one)} -> {_short(other)}" for key, (one, other) in pairs.items() if one != other]
        return [line for key, pair in pairs.items() for line in _change(f"{title} {key}", *pair)]
    return [] if before == after else [f"{title} changed: {_short(before)} -> {_short(after)}"]


def _keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*before, *after]))


def mapping_in(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping, given as such or as JSON text; else None."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def _short(value: Any) -> str:
    if value is None:
        return _ABSENT
    text = str(value)
    if _DIGEST.fullmatch(text):
        return f"{text[:8]}.."
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
