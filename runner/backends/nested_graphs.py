"""Nested graphs, in the attributes of nodes; the order of nodes; and a model that is taken apart at tensors."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple


def bodies(node: Any) -> Iterator[Tuple[str, Any]]:
    """Yield a node's nested graphs with the names of their attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for number, body in enumerate(attribute.graphs):
            yield f"{attribute.name}[{number}]", body


def graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph or a function and the graphs below it, in reading order."""
    yield graph
    for node in graph.node:
        for _, body in bodies(node):
            yield from graphs(body)


def all_graphs(model: Any) -> List[Any]:
    """Return whatever holds nodes in a model: its graph, its functions, and the graphs below these."""
    return [one for top in (model.graph, *model.functions) for one in graphs(top)]


def put_in_order(graph: Any) -> None:
    """Put what makes a tensor in front of what reads it, in bodies too. ONNX Runtime takes any order, others do not.

    ONNX Runtime's converter to float16 puts the Cast of an input last. A cycle stays as it is.
    """
    for below in graphs(graph):
        order = _order(below)
        if order != sorted(order):
            nodes = [below.node[at] for at in order]
            copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
            del below.node[:]
            below.node.extend(copies)


def _order(graph: Any) -> List[int]:
    maker = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[name] for name in _reads(node) if name in maker} - {at} for at, node in enumerate(graph.node)]
    order: List[int] = []
    placed: Set[int] = set()
    left = list(range(len(needs)))
    while left:
        count = len(left)
        for at in left:
            if needs[at] <= placed:
                placed.add(at)
                order.append(at)
        left = [at for at in left if at not in placed]
        if len(left) == count:
            return order + left
    return order


def _reads(node: Any) -> List[str]:
    inside = [name for _, body in bodies(node) for below in graphs(body) for one in below.node for name in one.input]
    return [*node.input, *inside]


# Every part of a model judged by itself: it gets the values that are right, and what it makes of them is an output.

MADE = "__winnow_made"
"""What is put behind the name of a tensor that a node makes, where others read the value that is right."""


def take_apart(model: Any, types: Dict[str, int], wanted: Sequence[str] | None = None) -> None:
    """Make each of these tensors that a node of the model makes both an input, which others read, and an output.

    ``types``: tensor -> element type. ``wanted``: of these alone (None: of all) the outputs, and the nodes that make
    them, stay. The model is changed in place.
    """
    from onnx import helper

    parted = set()
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name in types:
                node.output[place] = name + MADE
                parted.add(name)
    kept = [value for value in model.graph.output if value.name not in parted]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    for name in sorted(parted):
        model.graph.input.append(helper.make_tensor_value_info(name, types[name], None))
        model.graph.output.append(helper.make_tensor_value_info(name + MADE, types[name], None))
    if wanted is not None:
        _leave_only(model.graph, {name + MADE if name in parted else name for name in wanted})


def _leave_only(graph: Any, wanted: Set[str]) -> None:
    """Remove the other outputs, and what they alone need; where none of them is an output, all but one."""
    first = [value.name for value in graph.output][:1]
    needed = wanted.intersection(value.name for value in graph.output) or set(first)
    _remove(graph.output, lambda value: value.name in needed)

    def is_needed(node: Any) -> bool:
        if needed.isdisjoint(node.output):
            return False
        needed.update(node.input)
        for _, body in bodies(node):
            for inner in graphs(body):
                needed.update(value.name for value in inner.output)
                needed.update(name for one in inner.node for name in one.input)
        return True

    _remove(graph.node, is_needed)
    _remove(graph.input, lambda value: value.name in needed)


def _remove(field: Any, stays: Callable[[Any], bool]) -> None:
    """Remove what does not stay, from the last on."""
    for at in reversed(range(len(field))):
        if not stays(field[at]):
            del field[at]
