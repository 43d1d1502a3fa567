"""Names that earlier versions had: each is taken for the one that it has now, and a line says so."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner.cli.config.bounded_yaml import BoundedLoader, read_yaml
from runner.cli.config.paths import exists
from runner.cli.terminal import say
from runner.errors import UsageError
from runner.schema.installed_choices import SCHEMAS

KEYS: Mapping[str, str] = MappingProxyType(
    {
        "inputs.cut": "cut.policy",
        "inputs.outputs": "cut.outputs",
        "inputs.record": "cut.record",
        "inputs.record_timeout": "inputs.timeout",
        "inputs.shape_inference": "cut.shapes",
        "reference.flavour": "reference.flavor",
        "strategy.build_timeout": "strategy.timeout",
        "target.flavour": "target.flavor",
        "workers.leases": "workers.lease_folder",
    }
)
"""A key's name today by the one that it had."""
CHOICES: Mapping[str, str] = MappingProxyType(
    {"experiment/quantised": "experiment/quantized", "schema/strategy/strategy": "schema/strategy/reduce"}
)
"""The same for the options of a group."""
_NON_FINITE = {
    **dict.fromkeys(("true", "yes", "y", "on", "1"), "fail"),
    **dict.fromkeys(("false", "no", "n", "off", "0"), "ignore"),
}
VALUES: Mapping[str, Mapping[str, str]] = MappingProxyType({"checker.nan": _NON_FINITE, "checker.inf": _NON_FINITE})
"""A value's name today by the key and the one that it had, for the checker that had such values."""
#: this checker has such keys too, and never took such values for them
_OTHER = re.compile(r"\bcompare\b")
_PARAMETERS = "hydra.sweeper.params"


def overrides(argv: Sequence[str]) -> list[str]:
    """Return what was typed, by the names of today. Raises UsageError where a key is given by both of its names."""
    typed = {argument.partition("=")[0].lstrip("+") for argument in argv}
    changed, renamed = [], {}
    of_another = bool(typed & set(VALUES)) and _names_another_checker(argv)
    for argument in argv:
        name, equals, value = argument.partition("=")
        key = name.lstrip("+")
        now, word = KEYS.get(key, key), value if of_another else _value(key, value)
        if not equals or (now, word) == (key, value):
            changed.append(argument)
            continue
        _confirm(key, now, typed)
        renamed[key if now != key else f"{key}={value}"] = now if now != key else f"{now}={word}"
        changed.append(f"{name.removesuffix(key)}{now}={word}")
    _tell("", renamed)
    return changed


def content(
    plain: Mapping[str, Any], file: str, *, defaults: Any = None, told: set[str] | None = None
) -> dict[str, Any]:
    """Return what a file holds, by the names of today. Raises UsageError where a key is given by both of its names.

    ``defaults``: on what the file stands, where this is not in ``plain``. ``told``: lines that were said already.
    """
    changed = _copied(plain)
    renamed = {}
    for key, now in KEYS.items():
        section, _, name = key.rpartition(".")
        held = changed.get(section)
        if isinstance(held, dict) and name in held:
            place, _, new = now.rpartition(".")
            target = changed.setdefault(place, {})
            _confirm(key, now, [now] if not isinstance(target, dict) or new in target else [], file)
            target[new] = held.pop(name)
            renamed[key] = now
    params = _at(changed, _PARAMETERS)
    for key in () if _stands_on_another_checker([defaults, changed]) else VALUES:
        section, _, name = key.rpartition(".")
        for held, inner in ((_at(changed, section), name), (params, key)):
            before = held.get(inner)
            said = str(before).lower() if isinstance(before, bool) else str(before)
            if isinstance(before, (bool, int, str)) and said != _value(key, said):
                held[inner] = _value(key, said)
                renamed[f"{key}={said}"] = f"{key}={held[inner]}"
    for key in [key for key in params if key in KEYS]:
        _confirm(key, KEYS[key], params, file)
        params[KEYS[key]] = params.pop(key)
        renamed[key] = KEYS[key]
    _tell(f"{file}: ", renamed, told)
    return _without_unread(changed)


def choice(config_path: str, told: set[str] | None = None) -> str:
    """Return the option of a group by its name of today."""
    now = CHOICES.get(config_path, config_path)
    _tell("", {} if now == config_path else {config_path: now}, told)
    return now


def _value(key: str, text: str) -> str:
    """Return a value, or the choices of a sweep, by the words of today."""
    words = {} if "${" in text else VALUES.get(key, {})
    return re.sub(r"\w+", lambda found: words.get(found[0].lower(), found[0]), text) if words else text


def _names_another_checker(argv: Sequence[str]) -> bool:
    """Whether the checker that was typed, or else that of the file, is (or may be) one that never took old values."""
    typed = [argument.partition("=")[2] for argument in argv if argument.lstrip("+").startswith("checker=")]
    if typed:
        return bool(_OTHER.search(" ".join(typed)))
    if any(argument.startswith("+experiment=") for argument in argv):
        return True  # most of them choose that checker
    files = [Path(one).expanduser() for one in argv if one.endswith((".yaml", ".yml")) and exists(one)]
    return any(_stands_on_another_checker([read_yaml(file, BoundedLoader)]) for file in files if file.is_file())


def _stands_on_another_checker(files: Sequence[Any]) -> bool:
    """Whether one of them chooses such a checker: by its name, or in its defaults."""
    held = [file for file in files if isinstance(file, Mapping)]
    chosen = [file.get("checker") for file in held] + [one for one in files if not isinstance(one, Mapping)]
    parts = [(one.get("name"), one.get("defaults")) if isinstance(one, Mapping) else one for one in chosen]
    return bool(_OTHER.search(f"{parts} {[file.get('defaults') for file in held]}"))


def _without_unread(plain: dict[str, Any]) -> dict[str, Any]:
    """Leave out of the strategy in a replay what strategies of earlier versions had and did not read."""
    strategy = plain.get("strategy")
    if not plain.get("recorded") or not isinstance(strategy, dict):
        return plain
    schemas = SCHEMAS["strategy"].values()
    known = {item.name for schema in schemas for item in fields(schema)}
    subject = strategy.get("subject")
    own = [{item.name for item in fields(one)} for one in schemas if getattr(one, "subject", "") == subject]
    read = own[0] if own else known
    return {**plain, "strategy": {key: value for key, value in strategy.items() if key in read or key not in known}}


def _copied(value: Any) -> Any:
    """Return it with mappings that can be changed."""
    return {key: _copied(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def _at(plain: dict[str, Any], key: str) -> dict[str, Any]:
    held: Any = plain
    for part in key.split("."):
        held = held.get(part) if isinstance(held, dict) else None
    return held if isinstance(held, dict) else {}


def _confirm(key: str, now: str, given: Collection[str], file: str = "") -> None:
    if now != key and now in given:
        where = f"{file}: " if file else ""
        raise UsageError(f"{where}{key} is {now} now, and both are given. Leave out {key}")


def _tell(where: str, renamed: Mapping[str, str], told: set[str] | None = None) -> None:
    names = ", ".join(f"{before} is {now} now" for before, now in renamed.items())
    line = f"winnow: {where}{names}; the old name is taken for it"
    if renamed and (told is None or line not in told):
        say(line, error=True)
        if told is not None:
            told.add(line)
