"""Which input of a converted model is which of its original's: by the user's map, by name, else by order."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice, permutations
from typing import Any

from runner.exit_codes import UsageError
from runner.samples.declared_inputs import Declared, type_name
from runner.text import listed

_REALS = ("float", "double", "bfloat")
_MOST = 4
"""Inputs that are paired otherwise."""
PAIRED = "inputs with other names are paired by their order"
"""How a warning begins."""
_TYPED = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def matched_inputs(
    mine: Mapping[str, Declared],
    theirs: Mapping[str, Declared],
    told: Mapping[str, str | None],
    meant: Collection[str] = (),
) -> dict[str, str]:
    """Return the child's input by the parent's: as the map says, by name, else by place.

    ``meant``: those of the child that are integers and stand for floats.
    Raises UsageError for an input of the parent that none of the child's can be, with all that there are.
    """
    found = {
        partner: name for name, partner in told.items() if name in mine and partner is not None and partner in theirs
    }
    found |= {name: name for name in theirs if name in mine and name not in found and name not in found.values()}
    free = [name for name in mine if name not in found.values() and name not in told]
    left = [name for name in theirs if name not in found]
    if len(left) != len(free) and left:  # the place says nothing: there must be one choice for each
        choices = {name: [one for one in free if can_be(mine[one], theirs[name], meant)] for name in left}
        if all(len(one) == 1 for one in choices.values()) and len({one[0] for one in choices.values()}) == len(left):
            return found | {name: one[0] for name, one in choices.items()}
        raise _no_partner(left, mine, theirs, meant)
    for name, partner in zip(left, free, strict=False):
        if not can_be(mine[partner], theirs[name], meant):
            raise _no_partner([name], mine, theirs, meant)
        found[name] = partner
    return found


def can_be(mine: Declared, theirs: Declared, meant: Collection[str]) -> bool:
    """Whether one input can be the other: both hold or mean reals, or hold integers, and no fixed size differs."""
    if _kind(mine) != _kind(theirs) and not (mine.name in meant and _kind(theirs) == "real"):
        return False
    if mine.dims is None or theirs.dims is None:
        return True
    sizes = [both for both in zip(mine.dims, theirs.dims, strict=False) if all(isinstance(one, int) for one in both)]
    return len(mine.dims) == len(theirs.dims) and all(a == b for a, b in sizes)


def _no_partner(
    names: list[str], mine: Mapping[str, Declared], theirs: Mapping[str, Declared], meant: Collection[str]
) -> UsageError:
    shown = ", ".join(str(theirs[name]) for name in names)
    same = any(can_be(one, theirs[names[0]], meant) for one in mine.values())
    which = "Say" if same else "Both have to take the same inputs; if they do, say"
    return UsageError(
        f"reference.model: its input {shown} is none of the model's, which are "
        f"{', '.join(map(str, mine.values())) or 'none'}. {which} which is which: "
        f"reference.map='{{input of the model: {names[0]}}}'"
    )


def _kind(one: Declared) -> Any:
    if one.structure is not None:
        return one.structure
    name = type_name(one.dtype)
    return "real" if name.startswith(_REALS) else "whole" if "int" in name else name


def by_order(inputs: Mapping[str, str], told: Mapping[str, str | None]) -> dict[str, str]:
    """Return the parent's input by the child's, of those that were paired by order where there was a choice.

    ``inputs``: the child's by the parent's.
    """
    pairs = {mine: theirs for theirs, mine in inputs.items() if mine != theirs and mine not in told}
    return pairs if len(pairs) > 1 else {}


def other_pairs(pairs: Mapping[str, str], mine: Mapping[str, Declared]) -> Iterator[dict[str, str]]:
    """Yield the other ways to pair inputs, of which only those of one type and shape change places."""
    kinds = [(mine[name].structure, mine[name].dtype, mine[name].dims) for name in pairs]
    ways = permutations(range(len(pairs))) if len(pairs) <= _MOST else iter(())
    for places in islice(ways, 1, None):
        if all(kinds[at] == kinds[place] for at, place in enumerate(places)):
            yield dict(zip(pairs, [[*pairs.values()][place] for place in places], strict=True))


def said_of(pairs: Mapping[str, str], better: Mapping[str, str]) -> tuple[str, ...]:
    """Say which inputs were paired by order, and with which ``better`` pairs the outputs are right."""
    if not pairs:
        return ()
    then = f"Paired otherwise ({_words(better)}) all outputs are right" if better else ""
    return (f"{PAIRED}: {_words(pairs)}. {then or 'Say otherwise with reference.map'}",)


def _words(pairs: Mapping[str, str]) -> str:
    return listed([f"{mine} is {theirs}" for mine, theirs in pairs.items()])


def as_override(pairs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the override that pairs inputs so; nothing where a name cannot be typed."""
    typed = all(_TYPED.fullmatch(name) for pair in pairs.items() for name in pair)
    said = ", ".join(f"{mine}: {theirs}" for mine, theirs in pairs.items())
    return (f"reference.map={{{said}}}",) if typed else ()
