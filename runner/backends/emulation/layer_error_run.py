"""How much error each layer introduces when it alone runs in low precision: one instrumented run of the whole model.

The model runs in its high precision; beside each layer stands a copy that reads rounded inputs and rounds what it
makes, and the largest difference of the two is taken, relative to the largest value. So an error is seen where it
comes from, not where it arrives. Ranges come from the same run. What a nested graph measures leaves it through
additional outputs of its owner: a branch that was not taken tells nothing, of a loop the worst iteration counts.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, Dict, Mapping, Sequence

from runner.backends.emulation.measuring_outputs import UNMEASURED, Gauge, Wanted, instrumented
from runner.backends.emulation.rounding import unoptimized_session
from runner.backends.errors import StageError
from runner.backends.values import tensor_proto
from runner.backends.values.numpy_arrays import to_array


def introduced(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``layers``: {index: relative error} (null: not finite), ``ranges``: {"GRAPH/TENSOR": largest magnitude}.

    ``silent``: the tensors of which the range is wanted that no sample made.

    ``args``: ``model`` (in its high precision), ``low`` (element type), ``largest`` (its largest number),
    ``layers``: [[index, number of the graph, an
    output of the node]], ``beside`` (optional): [[index, number of the graph, a tensor, what it is in low precision]]
    in place of rounded copies of layers, ``tensors``: [[number of the graph, name]] of which the range is wanted,
    ``clamped``: weights with values that the low type does not reach, ``samples``: [{input: path}]. Graphs are numbered
    in reading order, outer ones first. Raises StageError (load, infer) where the model cannot be run so.
    """
    import onnx

    path = args["model"]
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    beside = args.get("beside")
    layers_to_copy = args["layers"] if beside is None else []
    wanted = Wanted(
        args["low"], args["largest"], layers_to_copy, beside or [], args["tensors"], frozenset(args["clamped"])
    )
    gauges = instrumented(model, wanted)
    found = _measured(session_of(model, path), gauges, args["samples"])
    layers: Dict[str, Any] = {}
    ranges: Dict[str, Any] = {}
    for gauge in gauges:
        if gauge.name not in found:
            continue
        number, known = found[gauge.name], str(gauge.of)
        if gauge.kind == "error":
            before = layers.get(known, 0.0)
            layers[known] = None if before is None or not math.isfinite(number) else max(before, number)
        else:
            ranges[known] = _plain(number)
    silent = [str(gauge.of) for gauge in gauges if gauge.kind == "largest" and gauge.name not in found]
    return {"layers": layers, "ranges": ranges, "silent": silent}


def session_of(model: Any, path: str) -> Any:
    """Return a session of a model as it is; its weights lie beside ``path``. Raises StageError (load)."""
    try:
        return unoptimized_session(model, path, threads=1)
    except Exception as error:
        raise StageError("load", type(error).__name__, str(error)) from error


def run_session(
    session: Any, names: Sequence[str], sample: Mapping[str, str], more: Mapping[str, Any] = MappingProxyType({})
) -> Dict[str, Any]:
    """Return outputs of a session by name, fed with the files of a sample and ``more``. Raises StageError (infer)."""
    fed = {value.name for value in session.get_inputs()}
    feeds = {name: to_array(tensor_proto.read(place)) for name, place in sample.items() if name in fed}
    if not names:
        return {}
    try:
        return dict(zip(names, session.run(list(names), {**feeds, **more})))  # noqa: B905 - as many as are asked for
    except Exception as error:
        raise StageError("infer", type(error).__name__, str(error)) from error


def _measured(session: Any, gauges: Sequence[Gauge], samples: Sequence[Mapping[str, str]]) -> Dict[str, float]:
    """Return the worst of each gauge over all samples; none of what never ran."""
    found: Dict[str, float] = {}
    for sample in samples:
        for name, value in run_session(session, [gauge.name for gauge in gauges], sample).items():
            for number in (float(number) for number in value.reshape(-1) if number != UNMEASURED):
                found[name] = _worst(found[name], number) if name in found else number
    return found


def _worst(one: float, other: float) -> float:
    return other if math.isnan(other) or other > one else one


def _plain(number: Any) -> Any:
    return number if number is not None and math.isfinite(number) else None
