"""The settings that a kept replay.yaml stands for, as if it were run again: composed under the rules for any file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config.compose import to_settings
from runner.cli.config.paths import is_by_name, rooted, use_of
from runner.cli.config.quoting import parse, quote
from runner.cli.config.user_file import NAME, store_user_file
from runner.cli.explain_errors import explain
from runner.errors import UsageError
from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import Settings

#: what the command line may change in a kept result: what runs it, and what judges it
_CHANGES = frozenset({"target", "reference", "checker"})


def typed_changes() -> tuple[str, ...]:
    """Return the overrides of the run that goes on which are for all kept results alike."""
    if not HydraConfig.initialized():
        return ()
    words = [str(word) for word in HydraConfig.get().overrides.task]
    return tuple(_from_here(word) for word in words if _group(word) in _CHANGES)


def replayed(path: Path, overrides: Sequence[str]) -> Settings:
    """Return the settings of a replay with what the ``overrides`` change in it; its paths start at its own folder.

    Raises UsageError for a file that is no such thing, and for what it may not say.
    """
    try:
        with _own_file_kept():
            store_user_file(path)
            config = GlobalHydra.instance().config_loader().load_configuration(NAME, list(overrides), RunMode.RUN)
        with open_dict(config):
            del config["hydra"]
        return rooted(to_settings(config), path.parent)
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise UsageError(explain(error).replace(NAME, str(path))) from error


@contextmanager
def _own_file_kept() -> Iterator[None]:
    """Leave the file of the run that goes on where Hydra finds it: later jobs of a sweep may be composed from it."""
    repository, name = ConfigStore.instance().repo, f"{NAME}.yaml"
    places = [repository, *(repository[group] for group in SCHEMAS if group in repository)]
    before = [place.get(name) for place in places]
    try:
        yield
    finally:
        for place, entry in zip(places, before, strict=True):
            place.pop(name, None)
            if entry is not None:
                place[name] = entry


def _from_here(override: str) -> str:
    """Return an override whose path, if it has one, starts where the user stands and not at a replay's folder."""
    key, made, here = override.partition("=")[0], parse(override), Path.cwd()
    use, value = use_of(key.lstrip("+")), None if made is None or made.is_sweep_override() else made.value()
    if not use or not isinstance(value, str) or not value or value.startswith("~") or is_by_name(use, value, here):
        return override
    return f"{key}={quote(str(here / value))}"


def _group(override: str) -> str:
    """Return the group of settings that an override is about."""
    return override.partition("=")[0].lstrip("+~").partition(".")[0]
