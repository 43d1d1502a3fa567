"""The choices of each group: settings classes of ours, and those that installed packages add.

A choice is a settings class; the default of its ``name`` is what a user types, and its ``implementation`` ("module:
attribute") is imported where it is used. An installed package adds choices by entry points: ``winnow.checkers``,
``winnow.backends``, ``winnow.subjects`` and ``winnow.inputs`` name settings classes, ``winnow.searches`` searches. The
YAML of a choice lies in the folder ``conf`` of the package (docs/extend.md). A configuration names choices, never code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

from omegaconf import OmegaConf

from runner.errors import UsageError
from runner.schema import backend, checker, diagnosis, inputs, strategy
from runner.schema.root import ArtifactSettings, WorkerSettings
from strategies import registry
from strategies.search import Procedure

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def _of(module: ModuleType) -> dict[str, Any]:
    """Return the choices that ``module`` declares: its settings classes that name an implementation."""
    return {kind.name: kind for kind in vars(module).values() if getattr(kind, "implementation", None)}


CONF = Path(__file__).resolve().parents[2] / "conf"
#: our own choices by group
_OURS: Mapping[str, Mapping[str, type]] = MappingProxyType(
    {
        "strategy": {**_of(strategy), **_of(diagnosis)},
        "checker": _of(checker),
        "target": {name: kind for name, kind in _of(backend).items() if not kind.has_expected},
        "reference": {name: backend.as_reference(kind) for name, kind in _of(backend).items()},
        "inputs": _of(inputs),
        "artifacts": {"artifacts": ArtifactSettings},
        "workers": {"workers": WorkerSettings},
    }
)
#: entry points -> the groups that they add a choice to, and what the settings class of one is derived from
_DOORS: Mapping[str, tuple[tuple[str, ...], type]] = MappingProxyType(
    {
        "winnow.checkers": (("checker",), checker.CheckerSettings),
        "winnow.backends": (("target", "reference"), backend.BackendSettings),
        "winnow.subjects": (("strategy",), strategy.StrategySettings),
        "winnow.inputs": (("inputs",), inputs.InputsSettings),
        "winnow.searches": (("strategy",), Procedure),
    }
)


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
    try:
        made = entry.load()
    except TypeError as error:
        if "frozen dataclass" not in str(error):
            raise
        raise TypeError(f"it has to be decorated with @settings, not @dataclass ({error})") from error
    if entry.name in (registry.SEARCHES if base is Procedure else _OURS[group]):
        raise ValueError(f"{group}={entry.name} is a choice of Winnow's own")
    schema = isinstance(made, type) and issubclass(made, base)
    if not schema and not isinstance(made, base):
        raise TypeError(f"it is no {base.__name__}")
    if not schema:
        if made.name != entry.name:
            raise TypeError(f'it has to be called like its entry point: Procedure("{entry.name}", ...)')
        return made
    if getattr(made, "name", None) != entry.name or not getattr(made, "implementation", None):
        raise TypeError(f'it has to say name: str = "{entry.name}" and implementation = "module:attribute"')
    if "__dataclass_params__" not in vars(made):  # it would have its base's keys only
        raise TypeError("it has to be decorated with @settings")
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
    name, known = settings.name, ", ".join(sorted(SCHEMAS[group]))
    if name not in SCHEMAS[group]:
        raise UsageError(f"{group}.name={name}: there is no such choice; there are {known}")
    if name != type(settings).name:
        raise UsageError(
            f"{group}.name={name} beside the settings of {type(settings).__name__}: choose it with {group}={name}"
        )
    return imported(f"{group}={name}", settings.implementation)


def imported(key: str, place: str) -> Any:
    """Return what "module:attribute" names. Raises UsageError, about the choice ``key``, where that is impossible."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        raise UsageError(f"{key}: {place} cannot be imported: {type(error).__name__}: {error}") from error


#: group -> name of a schema -> settings class
SCHEMAS: Mapping[str, Mapping[str, type]] = MappingProxyType(
    {group: MappingProxyType({**ours, **added().schemas.get(group, {})}) for group, ours in _OURS.items()}
)
#: the searches by name
SEARCHES: Mapping[str, Procedure] = MappingProxyType({**registry.SEARCHES, **added().searches})
