"""From the composed configuration of a run to plain settings."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config.paths import expand_home
from runner.cli.explain_errors import explain, unknown_key
from runner.errors import UsageError
from runner.schema.root import Settings


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
        elif not OmegaConf.is_missing(config, key) and not OmegaConf.is_interpolation(config, key):
            section = config[key]
            if isinstance(section, DictConfig):
                found += unknown_keys(section, f"{prefix}{key}.")
    return found
