"""Names that earlier versions had: each is taken for the one that it has now, and a line says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

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
GONE: Mapping[str, str] = MappingProxyType(
    {
        "audit": "as it tested Winnow's own cuts, which Winnow's tests do",
        "in_process": "as a check runs in a worker; to debug it, call it on what was found: "
        "check(str(found.model_path), found.inputs, found.expected)",
    }
)
"""Why a key is no more."""
CHOICES: Mapping[str, str] = MappingProxyType(
    {
        "experiment/quantised": "experiment/quantized",
        "hydra/hydra_logging/winnow": "hydra/hydra_logging/default",
        "schema/strategy/strategy": "schema/strategy/reduce",
    }
)
"""The same for the options of a group."""
_PARAMETERS = "hydra.sweeper.params"


def overrides(argv: Sequence[str]) -> list[str]:
    """Return what was typed, by the names of today. Raises UsageError where a key is given by both of its names."""
    typed = {argument.partition("=")[0].lstrip("+") for argument in argv}
    changed, renamed = [], {}
    for argument in argv:
        name, equals, value = argument.partition("=")
        key = name.lstrip("+")
        if not equals or key not in KEYS:
            changed.append(argument)
            continue
        _confirm(key, typed)
        renamed[key] = KEYS[key]
        changed.append(f"{name.removesuffix(key)}{KEYS[key]}={value}")
    _tell("", renamed)
    return changed


def content(plain: Mapping[str, Any], file: str, told: set[str] | None = None) -> dict[str, Any]:
    """Return what a file holds, by the names of today. Raises UsageError where a key is given by both of its names.

    ``told``: lines that were said already.
    """
    changed = _copied(plain)
    renamed = {}
    for key, now in KEYS.items():
        section, _, name = key.rpartition(".")
        held = changed.get(section)
        if isinstance(held, dict) and name in held:
            place, _, new = now.rpartition(".")
            target = changed.setdefault(place, {})
            _confirm(key, [now] if not isinstance(target, dict) or new in target else [], file)
            target[new] = held.pop(name)
            renamed[key] = now
    params = at(changed, _PARAMETERS)
    for key in [key for key in params if key in KEYS]:
        _confirm(key, params, file)
        params[KEYS[key]] = params.pop(key)
        renamed[key] = KEYS[key]
    _tell(f"{file}: ", renamed, told)
    return _without_unread(changed)


def choice(config_path: str, told: set[str] | None = None) -> str:
    """Return the option of a group by its name of today."""
    now = CHOICES.get(config_path, config_path)
    _tell("", {} if now == config_path else {config_path: now}, told)
    return now


def _without_unread(plain: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a replay what is off and gone, and what strategies of earlier versions had and did not read."""
    strategy = plain.get("strategy")
    if not plain.get("recorded") or not isinstance(strategy, dict):
        return plain
    plain = {key: value for key, value in plain.items() if key not in GONE or value}
    schemas = SCHEMAS["strategy"]
    known = {item.name for schema in schemas.values() for item in fields(schema)}
    # two strategies may have one subject; a name may be the user's own, or an earlier version's
    stated = strategy.get("defaults")
    names = [*(stated if isinstance(stated, list) else ()), strategy.get("name")]
    by_name = (schemas[name] for name in names if isinstance(name, str) and name in schemas)
    by_subject = (one for one in schemas.values() if getattr(one, "subject", "") == strategy.get("subject"))
    own = next(by_name, None) or next(by_subject, None)
    read = {item.name for item in fields(own)} if own else known
    return {**plain, "strategy": {key: value for key, value in strategy.items() if key in read or key not in known}}


def _copied(value: Any) -> Any:
    """Return it with mappings that can be changed."""
    return {key: _copied(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def at(plain: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the section that a dotted key names, an empty one where there is none."""
    held: Any = plain
    for part in key.split("."):
        held = held.get(part) if isinstance(held, dict) else None
    return held if isinstance(held, dict) else {}


def _confirm(key: str, given: Collection[str], file: str = "") -> None:
    if KEYS[key] in given:
        where = f"{file}: " if file else ""
        raise UsageError(f"{where}{key} is {KEYS[key]} now, and both are given. Leave out {key}")


def _tell(where: str, renamed: Mapping[str, str], told: set[str] | None = None) -> None:
    names = ", ".join(f"{before} is {now} now" for before, now in renamed.items())
    line = f"winnow: {where}{names}; the old name is taken for it"
    if renamed and (told is None or line not in told):
        say(line, error=True)
        if told is not None:
            told.add(line)
