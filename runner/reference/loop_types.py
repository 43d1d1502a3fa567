"""Loops that the reference cannot run to their end: what kind of values they would give.

A model in which the rank of an output is not known is refused by some runtimes and checkers. One or two iterations
tell the rank; the sizes stay open, since they may grow.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from runner.errors import WinnowError
from runner.model.graph.cut import CutError
from runner.model.nested.bodies import HoistError, Kind, bodies
from runner.model.nested.limited_loop_model import limited_loop
from runner.model.values.value_types import tensor_type
from runner.reference.body_values import Level, RecorderOf, run_alone

ITERATIONS = 2


def loop_types(level: Level, record: RecorderOf, folder: Path) -> dict[str, onnx.TypeProto]:
    """Return the types of what the Loops among ``level.recorded.unrunnable`` carry, sizes left open.

    Of a Loop that cannot be run at all, nothing. ``folder``: for values.
    """
    found: dict[str, onnx.TypeProto] = {}
    for number, body in enumerate(bodies(level.graph)):
        owner = level.graph.nodes[body.owner]
        if body.kind is not Kind.LOOP or owner.name not in level.recorded.unrunnable:
            continue
        try:
            model = limited_loop(level.graph, body, ITERATIONS)
            (values, *_) = run_alone(level, model, record, folder / str(number))
        except (HoistError, CutError, WinnowError, ValueError):
            continue
        for name in owner.outputs:
            if name in values and values[name].structure is None:
                found[name] = tensor_type(values[name].dtype, (None,) * len(values[name].shape))
    return found
