"""The settings that a kept replay.yaml stands for, as if it were run again: composed under the rules for any file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config.compose import to_settings
from runner.cli.config.paths import is_by_name, rooted, use_of
from runner.cli.config.quoting import parse, quote
from runner.cli.config.user_file import store_user_file
from runner.cli.explain_errors import explain
from runner.cli.signals import held
from runner.errors import UsageError
from runner.schema.root import Settings

#: beside the run's own file, of which later jobs of a sweep may be composed
_NAME = "winnow-replay"
#: what the command line may change in a kept result: what runs it, and what judges it
_CHANGES = frozenset({"target", "reference", "checker"})
#: what a run about kept results reads for itself
_OWN = frozenset({"strategy", "workers", "budget", "resume", "verbosity", "plan", "log", "cwd", "hydra"})


def typed_changes(recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the overrides of the run that goes on which are for all kept results alike.

    ``recorded``: what the run's own file, if it is a replay, holds of them. Raises UsageError for what is not read: a
    word that was typed, and what another file says of these sections.
    """
    if not HydraConfig.initialized():
        return ()
    told = HydraConfig.get()
    words = [str(word) for word in told.overrides.task]
    unread = [word for word in words if _group(word) not in _CHANGES | _OWN]
    if not recorded:
        unread += [f"{group}:" for group in _sections(str(told.job.config_name)) if group not in _OWN]
    for word in unread:
        raise UsageError(
            f"{word} is not read here: each kept result is checked as its own replay.yaml says, with what is typed "
            "for target, reference and checker. Leave it out"
            + (f", or type it: {word[:-1]}.KEY=VALUE" if word[:-1] in _CHANGES else "")
        )
    before = recorded.get("changes")
    kept = [str(one) for one in before if _group(str(one)) in _CHANGES] if isinstance(before, list) else []
    return (*kept, *(from_here(word) for word in words if _group(word) in _CHANGES))


def _sections(name: str) -> list[str]:
    """Return what a file of the user's says something of, which the run that goes on was composed from."""
    sources = GlobalHydra.instance().config_loader().get_sources() if name != "config" else []
    found: Any = next((one.load_config(name).config for one in sources if one.is_config(name)), {})
    chosen = [key for entry in found.get("defaults") or () if isinstance(entry, Mapping) for key in entry]
    groups = [re.sub(r"^(?:(?:override|optional) +)*/?|@.*", "", str(key)) for key in chosen]
    return [*groups, *(str(key) for key in found if key != "defaults")]


def replayed(path: Path, overrides: Sequence[str]) -> Settings:
    """Return the settings of a replay with what the ``overrides`` change in it; its paths start at its own folder.

    Raises UsageError for a file that is no such thing, and for what it may not say.
    """
    try:
        with held():  # OmegaConf loses an interruption in the midst of its own work
            name = store_user_file(path, _NAME)
            config = GlobalHydra.instance().config_loader().load_configuration(name, list(overrides), RunMode.RUN)
            with open_dict(config):
                del config["hydra"]
            return rooted(to_settings(config), path.parent)
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise UsageError(explain(error).replace(_NAME, str(path))) from error


def from_here(override: str) -> str:
    """Return an override whose path, if it has one, starts where the user stands and not at a replay's folder."""
    key, made, here = override.partition("=")[0], parse(override), Path.cwd()
    use, value = use_of(key.lstrip("+")), None if made is None or made.is_sweep_override() else made.value()
    if not use or not isinstance(value, str) or not value or value.startswith("~") or is_by_name(use, value, here):
        return override
    return f"{key}={quote(str(here / value))}"


def _group(override: str) -> str:
    """Return the group of settings that an override is about."""
    return override.partition("=")[0].lstrip("+~").partition(".")[0]
