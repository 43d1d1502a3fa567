"""The choices of each group: settings classes of ours, and those that installed packages add.

A choice is a settings class; the default of its ``name`` is what a user types, and its ``implementation`` ("module:
attribute") is imported where it is used. An installed package adds choices by entry points: ``winnow.checkers``,
``winnow.backends``, ``winnow.subjects`` and ``winnow.inputs`` name settings classes, ``winnow.searches`` searches. The
YAML of a choice lies in the folder ``conf`` of the package (docs/extend.md). A configuration names choices, never code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner import machine
from runner.exit_codes import UsageError
from runner.schema import backend, checker, inputs, strategy
from runner.schema.root import ArtifactSettings, Settings, WorkerSettings
from runner.text import close, one_line
from strategies import registry
from strategies.search import Procedure

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def _of(module: ModuleType) -> dict[str, Any]:
    """Return the choices that ``module`` declares: its settings classes that name an implementation."""
    return {kind.name: kind for kind in vars(module).values() if getattr(kind, "implementation", None)}


CONF = Path(__file__).resolve().parents[2] / "conf"
#: our own choices by group
_OURS: Mapping[str, Mapping[str, type]] = {
    "strategy": _of(strategy),
    "checker": _of(checker),
    "target": {name: kind for name, kind in _of(backend).items() if not kind.has_expected},
    "reference": {name: backend.as_reference(kind) for name, kind in _of(backend).items()},
    "inputs": _of(inputs),
    "artifacts": {"artifacts": ArtifactSettings},
    "workers": {"workers": WorkerSettings},
}
#: entry points -> the groups that they add a choice to, and what the settings class of one is derived from
_DOORS: Mapping[str, tuple[tuple[str, ...], type]] = {
    "winnow.checkers": (("checker",), checker.CheckerSettings),
    "winnow.backends": (("target", "reference"), backend.BackendSettings),
    "winnow.subjects": (("strategy",), strategy.StrategySettings),
    "winnow.inputs": (("inputs",), inputs.InputsSettings),
    "winnow.searches": (("strategy",), Procedure),
}


@dataclass(frozen=True)
class Added:
    """What installed packages add.

    ``schemas``: settings classes by group and name. ``conf``: packages that hold the YAML. ``broken``: why something
    cannot be loaded, by group and name. ``packages``: who adds it, with the version, by group (``strategy.search`` for
    searches) and name, and by ``("", MODULE)`` for the top-level modules of its code.
    """

    schemas: dict[str, dict[str, type]] = field(default_factory=dict)
    searches: dict[str, Procedure] = field(default_factory=dict)
    conf: list[str] = field(default_factory=list)
    broken: dict[tuple[str, str], str] = field(default_factory=dict)
    packages: dict[tuple[str, str], str] = field(default_factory=dict)


@cache
def added() -> Added:
    """Load what installed packages add; what cannot be loaded is noted, for whoever asks for it."""
    found = Added()
    every = entry_points()  # once: it reads what all installed packages say
    for door, (groups, base) in _DOORS.items():
        entries = every.select(group=door)
        for entry in entries:
            same = sorted(_package(other) for other in entries if other.name == entry.name)
            why = f"several installed packages add it ({', '.join(same)}). Uninstall all but one"
            try:
                if len(same) == 1:
                    why = f"the installed package {same[0]} should add it, but {entry.value} cannot be loaded: "
                    _add(found, entry, groups, _loaded(entry, groups[0], base))
                    continue
            except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others may fail in any way
                why += f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            found.broken.update({(group, entry.name): why for group in groups})
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


def _add(found: Added, entry: EntryPoint, groups: tuple[str, ...], made: Any) -> None:
    package = entry.module.partition(".")[0]
    if not hasattr(import_module(package), "__path__"):
        raise TypeError(f"{package} is a single module; it has to be a package, which has a folder conf")
    conf = f"{package}.conf"
    if conf not in found.conf and find_spec(conf):
        found.conf.append(conf)
    keys = [("strategy.search" if isinstance(made, Procedure) else group, entry.name) for group in groups]
    keys += [("", package), ("", getattr(made, "implementation", package).partition(".")[0])]
    found.packages.update(dict.fromkeys(keys, f"{_package(entry)} {entry.dist.version if entry.dist else ''}".strip()))
    if isinstance(made, Procedure):
        found.searches[entry.name] = made
        return
    schemas = {group: backend.as_reference(made) if group == "reference" else made for group in groups}
    for group, schema in schemas.items():
        found.schemas.setdefault(group, {})[entry.name] = schema


def _loaded(entry: EntryPoint, group: str, base: type) -> Any:
    made = entry.load()
    if entry.name in (registry.SEARCHES if base is Procedure else _OURS[group]):
        raise ValueError(f"{group}={entry.name} is a choice of Winnow's own")
    schema = isinstance(made, type) and issubclass(made, base)
    if not schema and not isinstance(made, base):
        raise TypeError(f"it is no {base.__name__}")
    if not schema:
        if made.name != entry.name:
            raise TypeError(f'it has to be called like its entry point: Procedure("{entry.name}", ...)')
        return made
    declared = getattr(made, "name", None) == entry.name and getattr(made, "implementation", None)
    if not declared or "__dataclass_params__" not in vars(made):  # else it would have its base's keys only
        raise TypeError(
            f'it has to be decorated with @settings, and to say name: str = "{entry.name}" and implementation = '
            '"module:attribute"'
        )
    get_type_hints(made)
    OmegaConf.structured(made)
    return made


def option_files(group: str) -> dict[str, Traversable]:
    """Return the YAML of each option of a group that a user may choose: Winnow's own, and what packages add."""
    folders = [CONF / group, *(files(package) / group for package in added().conf)]
    found = [one for folder in folders if folder.is_dir() for one in folder.iterdir() if one.name.endswith(".yaml")]
    return {one.name.removesuffix(".yaml"): one for one in found}


@cache
def usual_choices() -> Mapping[str, str]:
    """Return the option of each group that a run has if none is named."""
    listed = OmegaConf.load(CONF / "config.yaml").defaults
    return {str(group): str(name) for entry in listed if OmegaConf.is_dict(entry) for group, name in entry.items()}


def implied_choice(group: str, keys: Collection[str]) -> str:
    """Return the option of a group that alone has these keys, where the usual one lacks some; else nothing."""
    schemas = SCHEMAS[group]
    have = [name for name, schema in schemas.items() if {*keys} <= {item.name for item in fields(schema)}]
    by_schema = {*schemas} == {*option_files(group)}  # elsewhere several options are of one schema
    return have[0] if by_schema and len(have) == 1 and usual_choices()[group] not in have else ""


def implementation(group: str, settings: Any) -> Any:
    """Return what implements a choice. Raises UsageError for a name that is not that of the settings."""
    name = settings.name
    if name != type(settings).name or name not in SCHEMAS[group]:
        known = ", ".join(sorted(SCHEMAS[group]))
        raise UsageError(f"{group}.name={name}: a choice is made with {group}=NAME; there are {known}")
    return imported(f"{group}={name}", settings.implementation)


def imported(key: str, place: str) -> Any:
    """Return what "module:attribute" names. Raises UsageError, about the choice ``key``, where that is impossible."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        raise UsageError(f"{key}: {place} cannot be imported: {type(error).__name__}: {error}") from error


#: group -> name of a schema -> settings class
SCHEMAS: Mapping[str, Mapping[str, type]] = {
    group: {**ours, **added().schemas.get(group, {})} for group, ours in _OURS.items()
}
#: the searches by name
SEARCHES: Mapping[str, Procedure] = {**registry.SEARCHES, **added().searches}


# The settings of a run out of the files in `conf/` and of values that a program gives, without Hydra.
#
# Each option's file says in its `defaults` what it is made of: a schema, what the options of a group share, itself.
# That much of Hydra's grammar is read here, so that a program and a command line have the same defaults.

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
            made[key] = _section(key, map(_content, layers(f"{key}/{name}")), own)
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


def layers(name: str) -> Iterator[type | Path]:
    """Yield what the option ``name`` (group/option) is made of: schemas and files, the later over the earlier ones.

    A package's file may name what is not there: raises KeyError or StopIteration, which a generator makes RuntimeError.
    """
    if name.startswith(_SCHEMA):
        _, group, schema = name.split("/")
        yield SCHEMAS[group][schema]
        return
    folders = [CONF, *(Path(str(files(package))) for package in added().conf)]
    path = next(file for folder in folders if (file := folder / f"{name}.yaml").is_file())
    for entry in _yaml(path).get("defaults", [_ITSELF]):
        place = str(entry).removesuffix(_HERE)
        if entry == _ITSELF:
            yield path
        else:
            yield from layers(place[1:] if place.startswith("/") else f"{name.rpartition('/')[0]}/{place}")


def _content(layer: type | Path) -> DictConfig:
    if isinstance(layer, type):
        return config_of(layer)
    held = _yaml(layer)
    held.pop("defaults", None)
    return held


def _section(key: str, parts: Iterable[DictConfig], own: Any) -> Any:
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
