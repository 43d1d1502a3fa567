"""All searches by name: whatever a module of this package declares as a `Procedure`."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

import strategies
from strategies.search import Procedure, Task


def _declared() -> Iterator[Procedure]:
    for module in pkgutil.iter_modules(strategies.__path__):
        if module.name != "registry":
            held = vars(import_module(f"strategies.{module.name}"))
            yield from (value for value in held.values() if isinstance(value, Procedure))


SEARCHES: Mapping[str, Procedure] = MappingProxyType({procedure.name: procedure for procedure in _declared()})
"""A search by its name."""


def for_tasks(tasks: Collection[Task], searches: Mapping[str, Procedure] = SEARCHES) -> list[str]:
    """Return the names of the searches that are for one of these tasks."""
    return sorted(name for name, procedure in searches.items() if procedure.task in tasks)
