"""Tell Hydra about the settings, so that a wrong key or a wrong type is an error before any work.

The schema of an option lies in a group of its own (``schema/checker/command``), out of the way of the options that a
user chooses from; the option's YAML names it in its defaults. A user's own option does the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import OmegaConf

from runner import machine
from runner.errors import UsageError
from runner.schema.installed_choices import SCHEMAS
from runner.schema.option_files import config_of
from runner.schema.root import Settings

#: how much of a path a message shows
_SHOWN = 200


def register() -> None:
    """Store the schema and the resolvers that ``conf/`` uses, unless that was done: it takes a while."""
    OmegaConf.register_new_resolver("run_folder", run_folder, replace=True)
    OmegaConf.register_new_resolver("cpus", machine.cpus, replace=True)
    if "schema" in ConfigStore.instance().repo:
        return
    schemas: dict[tuple[str, str], type] = {("schema", "settings"): Settings}
    schemas |= {(f"schema/{group}", name): schema for group, named in SCHEMAS.items() for name, schema in named.items()}
    repository = ConfigStore.instance().repo
    for (group, name), schema in schemas.items():
        folder = repository
        for part in group.split("/"):
            folder = folder.setdefault(part, {})
        folder[f"{name}.yaml"] = _Schema(group, name, schema)


def run_folder(resume: str | None, fresh: str) -> str:
    """Return where a run writes: the folder it goes on with, or a fresh one. Raises UsageError if it is not there."""
    if not resume:
        return fresh
    try:
        folder = Path(resume).expanduser().absolute()
        there = folder.is_dir()
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, no such user
        there = False
    if not there:
        resume = f"{resume[:_SHOWN]}..." if len(resume) > _SHOWN else resume
        raise UsageError(f"resume={resume}: no such folder. Give the run folder of an interrupted run.")
    return str(folder)


class _Schema(ConfigNode):
    """An entry of Hydra's store whose ``node`` is made when it is asked for: a run needs a quarter of them."""

    def __init__(self, group: str, name: str, schema: type) -> None:
        self.name, self.group, self.package, self.provider = f"{name}.yaml", group, None, "winnow"
        self._schema = schema

    def __getattr__(self, name: str) -> Any:
        if name != "node":
            raise AttributeError(name)
        return config_of(self._schema)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a plain entry: another process, to which joblib sends the store, has not made these schemas."""
        return ConfigNode, (self.name, self.node, self.group, self.package, self.provider)
