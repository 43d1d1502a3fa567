"""The user's map from tensors of a model to those of its original, and how the inputs of both correspond.

This is known before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from runner.judgment import UsageError
from runner.model.graph.graph_index import Graph
from runner.samples.declared_inputs import Declared, type_name

# What is known of two related models before anything runs: the user's map, and how their inputs correspond.

_REALS = ("float", "double", "bfloat")
_CLOSEST = 3
PARTNERS = "partners.json"
"""The map that Winnow writes of a model that it quantizes itself."""


def read_map(given: Any, child: Graph, parent: Graph) -> dict[str, str | None]:
    """Return ``reference.map``: the parent's tensor (None: it has none) by the child's.

    ``given``: the mapping itself, the path of a JSON or YAML file with one, or None. Raises UsageError for a file that
    holds none, and for names that are no tensors of the models.
    """
    if given is None:
        return {}
    key = "reference.map"
    if isinstance(given, str):
        key = f"reference.map={given}"
        given = _read(given)
    # aliases of aliases can stand for texts beyond all memory
    if not isinstance(given, Mapping) or any(isinstance(one, (Mapping, list)) for one in given.values()):
        raise UsageError(f"{key}: it must be a mapping {{tensor of the model: tensor of reference.model}}")
    found = {str(mine): None if theirs is None else str(theirs) for mine, theirs in given.items()}
    wrong = [
        *_unknown(found, _tensors(child), "model"),
        *_unknown([name for name in found.values() if name is not None], _tensors(parent), "reference.model"),
    ]
    if wrong:
        raise UsageError(f"{key}: {'; '.join(wrong)}")
    return found


def matched_inputs(
    mine: Mapping[str, Declared], theirs: Mapping[str, Declared], told: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the child's input by the parent's: as the map says, by name, else by place.

    Raises UsageError for an input of the parent that none of the child's can be, with all that there are.
    """
    found = {
        partner: name for name, partner in told.items() if name in mine and partner is not None and partner in theirs
    }
    found |= {name: name for name in theirs if name in mine and name not in found and name not in found.values()}
    free = [name for name in mine if name not in found.values() and name not in told]
    left = [name for name in theirs if name not in found]
    if len(left) != len(free) and left:  # the place says nothing: there must be one choice for each
        choices = {name: [one for one in free if not unlike(mine[one], theirs[name])] for name in left}
        if all(len(one) == 1 for one in choices.values()) and len({one[0] for one in choices.values()}) == len(left):
            return found | {name: one[0] for name, one in choices.items()}
        raise _no_partner(left, mine, theirs)
    for name, partner in zip(left, free, strict=False):
        if unlike(mine[partner], theirs[name]):
            raise _no_partner([name], mine, theirs)
        found[name] = partner
    return found


def unlike(mine: Declared, theirs: Declared) -> str:
    """Why one input cannot be the other, "" if it can: both hold reals, or integers, and no fixed size differs."""
    if _kind(mine) != _kind(theirs):
        return "another type"
    if mine.dims is None or theirs.dims is None:
        return ""
    if len(mine.dims) != len(theirs.dims):
        return "another rank"
    sizes = zip(mine.dims, theirs.dims, strict=True)
    return "another shape" if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes) else ""


def _no_partner(names: list[str], mine: Mapping[str, Declared], theirs: Mapping[str, Declared]) -> UsageError:
    shown = ", ".join(str(theirs[name]) for name in names)
    return UsageError(
        f"reference.model: its input {shown} is none of the model's, which are "
        f"{', '.join(map(str, mine.values())) or 'none'}. Say which is which: "
        f"reference.map='{{input of the model: {names[0]}}}'"
    )


def _kind(one: Declared) -> Any:
    if one.structure is not None:
        return one.structure
    name = type_name(one.dtype)
    return "real" if name.startswith(_REALS) else "whole" if "int" in name else name


def _read(path: str) -> Any:
    place = Path(path).expanduser()
    try:
        return yaml.safe_load(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"reference.map={path}: it cannot be read ({error}). Give a JSON or YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none; one nested without end
        said = " ".join(str(error).split())
        raise UsageError(f"reference.map={path}: it is neither JSON nor YAML ({said})") from None


def _tensors(graph: Graph) -> frozenset[str]:
    return frozenset({*graph.producers, *graph.inputs, *graph.initializers})


def _unknown(names: Collection[str], tensors: Collection[str], key: str) -> list[str]:
    found = []
    for name in names:
        if name not in tensors:
            close = get_close_matches(name, tensors, _CLOSEST)
            found.append(f"{key} has no tensor {name!r}" + (f"; close: {', '.join(map(repr, close))}" if close else ""))
    return found
