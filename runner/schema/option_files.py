"""The settings of a run out of the files in `conf/` and of values that a program gives, without Hydra.

Each option's file says in its `defaults` what it is made of: a schema, what the options of a group share, itself. That
much of Hydra's grammar is read here, so that a program and a command line have the same defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner import machine
from runner.errors import UsageError
from runner.schema.installed_choices import CONF, SCHEMAS, added, implied_choice, option_files, usual_choices
from runner.schema.root import Settings
from runner.text import close, one_line

_HERE, _ITSELF, _SCHEMA = "@_here_", "_self_", "schema/"


def compose(given: Mapping[str, Any]) -> Settings:
    """Return the settings of a run in which ``given`` takes the place of what `conf/` says.

    ``given``: by key. For a group the name of an option, a mapping (``name``: the option; and its keys), or settings as
    they are; for a section a mapping or settings; else the value. Raises UsageError for a key, an option or a value
    that cannot be.
    """
    OmegaConf.register_new_resolver("cpus", machine.cpus, replace=True)
    kinds = get_type_hints(Settings)
    _refuse_unknown("", given, kinds)
    root = _yaml(CONF / "config.yaml")
    options = usual_choices()
    made: dict[str, Any] = {}
    for key, kind in kinds.items():
        value = given.get(key)
        if is_dataclass(value):
            if not isinstance(value, kind):
                raise UsageError(f"{key}: these are {type(value).__name__}; it takes {kind.__name__}")
            made[key] = value
        elif key in SCHEMAS:
            name, own = _named(key, value, options[key])
            made[key] = _section(key, _parts(f"{key}/{name}"), own)
        elif is_dataclass(kind):
            section: Any = kind
            layer = _yaml(CONF / "shared" / "cut.yaml") if key == "cut" else root[key]
            made[key] = _section(key, [config_of(section), layer], value or {})
        elif value is not None:
            if kind is bool and not isinstance(value, bool):
                raise UsageError(f"{key}={value!r}: it takes True or False")
            made[key] = fspath(value) if isinstance(value, PathLike) else value
    return Settings(**made)


def _named(group: str, given: Any, usual: str) -> tuple[str, Mapping[str, Any]]:
    """Return the option of a group and the keys that were given for it. Raises UsageError for what names neither."""
    own = {"name": given} if isinstance(given, str) else {} if given is None else given
    if not isinstance(own, Mapping):
        raise UsageError(f"{group}: {type(given).__name__} is neither the name of an option nor a mapping of its keys")
    name, there = own.get("name") or implied_choice(group, own) or usual, sorted(option_files(group))
    if name not in there:
        raise UsageError(f"{group}={name}: no such option{close(str(name), there)}. There are: {', '.join(there)}")
    return str(name), {key: value for key, value in own.items() if key != "name"}


def _folders() -> list[Path]:
    return [CONF, *(Path(str(files(package))) for package in added().conf)]


def _parts(name: str) -> Iterator[DictConfig]:
    """Yield what the option ``name`` (group/option) is made of, in the order in which one takes another's place."""
    if name.startswith(_SCHEMA):
        _, group, schema = name.split("/")
        yield config_of(SCHEMAS[group][schema])
        return
    own = _yaml(next(path for folder in _folders() if (path := folder / f"{name}.yaml").is_file()))
    for entry in own.pop("defaults", [_ITSELF]):
        if entry == _ITSELF:
            yield own
        else:
            yield from _parts(str(entry).removesuffix(_HERE).lstrip("/"))


def _section(key: str, parts: Iterator[DictConfig] | list[DictConfig], own: Any) -> Any:
    """Return the settings that ``parts`` and, on top, the user's ``own`` make. Raises UsageError where they cannot."""
    if not isinstance(own, Mapping):
        raise UsageError(f"{key}: {type(own).__name__} is no mapping of its keys")
    whole = list(parts)
    _refuse_unknown(key, own, whole[0])
    try:
        return OmegaConf.to_object(OmegaConf.merge(*whole, OmegaConf.create(_plain(own))))
    except OmegaConfBaseException as error:
        where = f"{key}.{error.full_key}" if error.full_key else key
        raise UsageError(f"{where}: {one_line(str(error).partition(chr(10))[0])}") from error


def _refuse_unknown(section: str, given: Mapping[str, Any], keys: Any) -> None:
    known = [str(key) for key in keys]
    for key in map(str, given):
        if key not in known:
            where = f"{section}.{key}" if section else key
            raise UsageError(f"{where}: there is no such key{close(key, known)}. Keys: {', '.join(known)}")


def _plain(value: Any) -> Any:
    """Return what a program gives as YAML would hold it: paths as text, and text that means itself."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, PathLike):
        value = fspath(value)
    return escape_interpolation(value) if isinstance(value, str) else value


def escape_interpolation(text: str) -> str:
    r"""Return ``text`` so that OmegaConf resolves it to ``text``.

    Text without ``${`` stays as it is. In other text ``${`` becomes ``\${``, and backslashes before it are doubled
    (OmegaConf 2.3, "escaped interpolations").
    """
    if "${" not in text:
        return text
    return re.sub(r"(\\*)\$\{", lambda match: match.group(1) * 2 + r"\${", text)


def _yaml(path: Path) -> DictConfig:
    held = OmegaConf.load(path)
    assert isinstance(held, DictConfig)
    return held


@cache
def config_of(schema: type) -> DictConfig:
    """Return the config of a schema; mappings in it take any key (``inputs.shapes={x: [1, 3]}``).

    Hydra locks the whole configuration against unknown keys; what is a mapping in the schema has none that are known.
    """
    node: DictConfig = OmegaConf.structured(schema)
    for key in map(str, node):
        if OmegaConf.get_type(node, key) is dict:  # not a group, whose keys are known
            OmegaConf.set_struct(node[key], False)
    return node
