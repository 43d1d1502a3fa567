"""Which nodes a user means: by name, by pattern, or between tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from runner.errors import UsageError
from runner.model.graph.graph_index import Graph
from strategies.trial import Trial


def named(graph: Graph, wanted: Sequence[str]) -> Trial:
    """Return the top-level nodes of these names; what is no name is a shell pattern. Raises UsageError for no node."""
    places: dict[str, list[int]] = {}
    for node in graph.nodes:
        places.setdefault(node.name, []).append(node.index)
    found: set[int] = set()
    for name in wanted:
        here = places.get(name) or [at for other, some in places.items() if fnmatchcase(other, name) for at in some]
        if not here:
            raise UsageError(f"strategy.nodes={name}: the model has no such node at its top level{_near(name, places)}")
        found.update(here)
    return Trial.of(found)


def between(graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> Trial:
    """Return the nodes that depend on one of ``inputs`` and on which one of ``outputs`` depends.

    Without inputs all that the outputs need, without outputs all that needs the inputs. Raises UsageError for a tensor
    that is none, and where nothing lies between.
    """
    tensors = {*graph.producers, *graph.readers}
    for key, names in (("inputs", inputs), ("outputs", outputs)):
        for name in names:
            if name not in tensors:
                raise UsageError(f"strategy.{key}={name}: the model has no such tensor{_near(name, tensors)}")
    before = _reached(_producers(graph, outputs or graph.outputs), lambda at: graph.parents[at])
    children = _children(graph.parents)
    readers = [at for name in inputs for at in graph.readers.get(name, ())]
    after = _reached(readers, lambda at: children[at]) if inputs else before
    if not before & after:
        raise UsageError(f"no node lies between strategy.inputs={list(inputs)} and strategy.outputs={list(outputs)}")
    return Trial.of(before & after)


def _producers(graph: Graph, names: Iterable[str]) -> list[int]:
    return [graph.producers[name] for name in names if name in graph.producers]


def _children(parents: Sequence[Sequence[int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in parents]
    for child, above in enumerate(parents):
        for parent in above:
            found[parent].append(child)
    return found


def _reached(start: Iterable[int], edges: Callable[[int], Iterable[int]]) -> set[int]:
    seen = set(start)
    stack = list(seen)
    while stack:
        for other in edges(stack.pop()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def _near(name: str, known: Iterable[str]) -> str:
    """Return what was meant, perhaps, as the end of a message."""
    near = get_close_matches(name, list(known), 3)
    return f". Did you mean {' or '.join(near)}?" if near else ""
