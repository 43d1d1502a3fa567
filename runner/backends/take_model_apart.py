"""Every part of a model judged by itself: it gets the values that are right, and what it makes of them is an output."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH107, PTH110
from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Iterable, List, Sequence, Set, Tuple

from runner.backends.emulation.rounding import do_not_optimize
from runner.backends.nested_graphs import bodies, graphs

MADE = "__made"
"""What is put behind the name of a tensor that a node makes, where others read the value that is right.

Underscores follow where a tensor of the model has such a name: more than behind any of these.
"""
_ENDS = re.compile(MADE + "_*$")


def made_end(names: Iterable[str]) -> str:
    """Return what stands behind the names of made tensors among these; "" where there are none."""
    return max((found.group() for found in map(_ENDS.search, names) if found), key=len, default="")


def take_apart(model: Any, types: Dict[str, int], wanted: Sequence[str] | None = None) -> None:
    """Make each of these tensors that a node of the model makes both an input, which others read, and an output.

    ``types``: tensor -> element type. ``wanted``: of these alone (None: of all) the outputs, and the nodes that make
    them, stay. The model is changed in place.
    """
    from onnx import helper

    held = [*model.graph.input, *model.graph.output, *model.graph.initializer]
    taken = made_end([*(value.name for value in held), *(name for node in model.graph.node for name in node.output)])
    end = taken + "_" if taken else MADE
    parted = set()
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name in types:
                node.output[place] = name + end
                parted.add(name)
    kept = [value for value in model.graph.output if value.name not in parted]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    for name in sorted(parted):
        model.graph.input.append(helper.make_tensor_value_info(name, types[name], None))
        model.graph.output.append(helper.make_tensor_value_info(name + end, types[name], None))
    if wanted is not None:
        _leave_only(model.graph, {name + end if name in parted else name for name in wanted})


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


def optimized(path: str, options: Any, create: Callable[[str], Any]) -> Any:
    """Return the model of a file as ONNX Runtime would run it, and set ``options`` so that it stays as it is.

    ``create``: makes a session with them. An output that is added before the optimizations keeps nodes from being
    fused, and hides what they do; one that is added to their result does not.
    """
    import onnx

    # beside the file: that is where its weights are looked for
    place = path + ".optimized"
    options.optimized_model_filepath = place
    try:
        create(path)
        model = onnx.load(place, load_external_data=False)
    finally:
        options.optimized_model_filepath = ""
        if os.path.exists(place):
            os.remove(place)
    do_not_optimize(options, path)
    return model


def neighbors(model: Any) -> Dict[str, Tuple[List[str], List[str]]]:
    """Return what each node reads and gives, by its name."""
    end = made_end(name for node in model.graph.node for name in node.output)
    return {
        node.name: (
            list(node.input),
            [name[: -len(end)] if end and name.endswith(end) else name for name in node.output],
        )
        for node in model.graph.node
        if node.name
    }
