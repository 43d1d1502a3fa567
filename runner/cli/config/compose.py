"""From the configurations that make a run's to the composed one, and from that to plain settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra._internal.defaults_list import Overrides
from hydra.core.default_element import InputDefault
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config.paths import expand_home
from runner.cli.explain_errors import explain, unknown_key
from runner.errors import UsageError
from runner.schema.root import Settings


def referred_choices(
    made: Callable[[Overrides, list[InputDefault], bool], DictConfig],
    overrides: Overrides,
    defaults: list[InputDefault],
    self_added: bool,
) -> DictConfig | None:
    """Return what a name in a defaults list may refer to; few lists have such a name, and it is made for each list."""
    named = any(entry.is_interpolation() for entry in defaults)
    return made(overrides, defaults, self_added) if named else None


def merged(configs: Sequence[Any]) -> DictConfig:
    """Return the ``configs``, each over those before it, without the lists of defaults that have been read.

    Hydra does the same in a call for each: at the end of a call OmegaConf goes through all that was merged so far.
    """
    whole = OmegaConf.create()
    with flag_override(whole, "no_deepcopy_set_nodes", True):
        whole.merge_with(*configs)
    _strip_defaults(whole)
    return whole


def _strip_defaults(node: Any) -> None:
    if not isinstance(node, DictConfig) or node._is_missing() or node._is_none():
        return
    with flag_override(node, ["readonly", "struct"], False):
        if node._get_flag("HYDRA_REMOVE_TOP_LEVEL_DEFAULTS"):
            node._set_flag("HYDRA_REMOVE_TOP_LEVEL_DEFAULTS", None)
            node.pop("defaults", None)
    for _, inner in node.items_ex(resolve=False):
        _strip_defaults(inner)


def to_settings(config: DictConfig) -> Settings:
    """Return ``config`` as frozen dataclasses, ``~`` expanded. Raises UsageError where it does not fit the schema."""
    extra = unknown_keys(config)
    if extra:
        raise UsageError(" ".join(unknown_key(key, kind) for key, kind in extra))
    try:
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise UsageError(explain(error)) from error
    if not isinstance(settings, Settings):
        raise UsageError(
            "the configuration was not composed from Winnow's: start the file's `defaults` with `config` "
            "(defaults: [config, _self_])."
        )
    return expand_home(settings)


def unknown_keys(config: DictConfig, prefix: str = "") -> list[tuple[str, type]]:
    """Return keys that ``+key=value`` forced into a section whose schema has no such key."""
    kind = OmegaConf.get_type(config)
    if kind is None or not is_dataclass(kind):
        return []
    names = {item.name for item in fields(kind)}
    found: list[tuple[str, type]] = []
    for key in map(str, config):
        if key not in names:
            found.append((prefix + key, kind))
        elif not OmegaConf.is_missing(config, key) and OmegaConf.is_dict(config._get_node(key)):
            section = config[key]
            if isinstance(section, DictConfig):
                found += unknown_keys(section, f"{prefix}{key}.")
    return found
