"""What a sweep's job finds of its launcher's memory: what no command line can say. It is JSON; nothing is pickled."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from runner.cli.compose import FILES, NAME

#: holds the descriptor of the file in which it is left
VARIABLE = "WINNOW_LAUNCHER"


@dataclass(frozen=True)
class LauncherMemory:
    """What the launcher remembers for job ``number``.

    ``program``: what started the sweep, as `sys.argv` names it; ``command``: what the user typed for it. ``file``: a
    YAML file that was given; ``sections``: what it held when the sweep began, by the name that Hydra has for it.
    ``resolved``: for each of Hydra's caching resolvers (``${now:...}``) the arguments and values so far.
    """

    number: int
    program: str
    command: tuple[str, ...]
    file: str
    sections: Mapping[str, str]
    resolved: Mapping[str, Sequence[tuple[Any, Any]]]

    @staticmethod
    def of(number: int, command: Sequence[str], sweep: DictConfig) -> LauncherMemory:
        """Return what there is to remember for job ``number`` of the ``sweep`` with this configuration."""
        stored = {name: held for name, held in FILES.items() if name.rpartition("/")[2] == NAME}
        cache = OmegaConf.get_cache(sweep)
        return LauncherMemory(
            number,
            sys.argv[0],
            tuple(command),
            next((file for _, file in stored.values()), ""),
            {name: OmegaConf.to_yaml(node) for name, (node, _) in stored.items()},
            {
                name: [(key, value) for key, value in known.items() if isinstance(value, (str, int, float, bool))]
                for name, known in cache.items()
            },
        )

    def to_json(self) -> str:
        """Return this as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def received() -> LauncherMemory | None:
        """Return what the launcher left for this process; None where no launcher has started it."""
        descriptor = os.environ.pop(VARIABLE, None)
        if descriptor is None:
            return None
        with os.fdopen(int(descriptor), encoding="utf-8") as file:
            data = json.load(file)
        return LauncherMemory(**{**data, "command": tuple(data["command"])})

    def restore_file(self) -> None:
        """Let Hydra find the user's file as it was."""
        FILES.update({name: (DictConfig(OmegaConf.create(text)), self.file) for name, text in self.sections.items()})

    def restore_program(self) -> None:
        """Let messages name the program as it was typed for the sweep; a job is started by the path of a file."""
        sys.argv[0] = self.program

    def restore_values(self, config: DictConfig) -> None:
        """Let ``config`` resolve to what the sweep has resolved to so far."""
        cache = defaultdict[str, dict[Any, Any]](dict)
        for name, pairs in self.resolved.items():
            cache[name] = {_tuples(key): value for key, value in pairs}
        OmegaConf.set_cache(config, cache)


def _tuples(key: Any) -> Any:
    return tuple(_tuples(part) for part in key) if isinstance(key, list) else key
