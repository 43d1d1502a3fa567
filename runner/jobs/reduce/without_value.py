"""What is told where no type gives a node a value: out of what it computes NaN or Inf, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.engine.session_question import Cause
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import Whose
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import read
from runner.text import counted

Array = np.ndarray[Any, Any]

_BY_ELEMENT = frozenset({"Div", "Sqrt", "Log", "Pow", "Reciprocal", "Mod", "Acos", "Asin", "Acosh", "Atanh", "Sub"})
"""Operators each element of which comes of one of each input."""


def not_finite(base: Subgraph, name: str) -> str:
    """Say how much of a weight is NaN or Inf; "": nothing is, or it is no weight of floats."""
    held = base.graph.initializers.get(name)
    array = base.store.array(held) if isinstance(held, TensorProto) and held.data_type in FLOATS else np.zeros(0)
    odd = array[~np.isfinite(array)]
    kind = "NaN" if np.isnan(odd).any() else "Inf"
    return (
        f"{odd.size} of {counted(array.size, 'element')} {'is' if odd.size == 1 else 'are'} {kind}" if odd.size else ""
    )


def without_value(cause: Cause, base: Subgraph, tensor: str, values: tuple[Array, ...]) -> Cause:
    """Return the cause with the value out of an operator's domain, and the node that made it."""
    index = base.graph.producers[tensor]
    node = base.graph.nodes[index]
    sample, value = next((at, one) for at, one in enumerate(values) if not np.isfinite(one).all())
    place = tuple(int(at) for at in np.argwhere(~np.isfinite(value))[0])
    kind = "NaN" if np.isnan(value[place]) else "Inf" if value[place] > 0 else "-Inf"
    names, read_ = base.graph.protos[index].input, []
    odd = {name: said for name in names if (said := not_finite(base, name))}
    for name in odd or names:
        held = base.recorded.values[sample].get(name) if base.recorded.values else None
        weight = base.graph.initializers.get(name)
        array = read(held) if held else base.store.array(weight) if isinstance(weight, TensorProto) else None
        if array is None or not (array.dtype.kind in "fiu" or name in odd) or not array.size:
            continue
        maker = base.graph.producers.get(name)
        whose = f"output of {base.graph.nodes[maker].name}" if maker is not None else "an input" if held else "a weight"
        try:
            element = np.broadcast_to(array, value.shape)[place]
            told = f"{float(element):.6g}" if node.op_type in _BY_ELEMENT else ""
        except ValueError:
            told = ""
        span = odd.get(name) or " to ".join(dict.fromkeys(f"{float(end):.6g}" for end in (array.min(), array.max())))
        read_.append(f"{told} ({name}, {whose})" if told else f"{name} ({whose}, {span})")
    said = f"{node.name} ({node.op_type}) computes {kind} from {' and '.join(read_) or 'its inputs'}"
    return replace(cause, reason=said, whose=Whose.MODEL, no_value=said)
