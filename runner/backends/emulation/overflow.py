"""Finds the infinities that low precision makes inside a model, and which of them lead to wrong values.

The model is run as `rounding` rewrites it. The first run only asks whether all tensors are finite; where they are, that
is all. The second has, beside each that is not, what it would be without that, and tells where values that are finite
again are wrong: see `overflow_shadows`.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set

from runner.backends.emulation.layer_error_run import run_session, session_of
from runner.backends.emulation.measuring_outputs import (
    UNMEASURED,
    Additions,
    Gauge,
    add_constants,
    add_owner_outputs,
)
from runner.backends.emulation.original_names import WIDE, final, is_raw, plain, prefixes
from runner.backends.emulation.overflow_shadows import CONSTANTS, Shadows
from runner.backends.emulation.rounding import rewritten
from runner.backends.nested_graphs import bodies

_FLOAT = 1


def overflow(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``tensors``: those that rounding makes infinite, in the model's order.

    ``args``: ``model`` (its low tensors have low types in the file), ``high`` (the same with nothing low, or null),
    ``rounding`` (on, strict), ``samples``: [{input: path}]. Of each tensor: ``graph`` (its number in reading order,
    outer ones first), ``tensor``, ``node`` (the path of what makes it), ``op``, ``largest`` (the largest magnitude that
    is not finite here), ``made`` (it is not finite before it is rounded either), ``harm`` (null; or ``node``, ``op``,
    ``error``, ``made`` and ``right`` of the first finite values that are wrong), ``absorbed_by`` (paths of nodes that
    read it, or what is not finite by it, and make what is right all the same), ``unknown`` (the path of a node that
    reads it and cannot be followed, so that harm is not known; else null), ``output`` (it arrives at an output of the
    model). Raises StageError (load, infer) where the model cannot be run so, and ValueError for a model with functions.
    """
    import onnx

    path = args["model"]
    model = onnx.load(path, load_external_data=False)
    types = rewritten(model, strict=args.get("rounding") == "strict")
    first = onnx.ModelProto()
    first.CopyFrom(model)
    gauges = _gauged(first.graph, iter(range(1 << 30)), types)
    add_constants(first, {}, gauges)
    session = session_of(first, path)
    bad = []
    for sample in args["samples"]:
        found = _measured(session, gauges, sample, {})
        bad.append({str(gauge.of) for gauge in gauges if _is_broken(found[gauge.name])})
    suspects: Set[str] = set().union(*bad)
    if not suspects:
        return {"tensors": []}
    del session, first
    samples = [sample for sample, broken in zip(args["samples"], bad) if broken]  # noqa: B905 - as many; see above
    good = _good(args.get("high"), sorted(_origins(model.graph, suspects)), samples)
    # as many of each sample
    fed = {name: f"winnow__good_{number}" for number, name in enumerate(good[0])}
    model.graph.input.extend(onnx.helper.make_tensor_value_info(name, _FLOAT, None) for name in fed.values())
    shadows = Shadows(types, list(prefixes(model.graph)), suspects, fed)
    gauges = shadows.add(model.graph)
    model.graph.initializer.append(onnx.helper.make_tensor("winnow__flat", onnx.TensorProto.INT64, [1], [-1]))
    add_constants(model, CONSTANTS, gauges)
    session = session_of(model, path)
    results = _Results(shadows)
    for sample, values in zip(samples, good):  # noqa: B905 - see above
        more = {fed[name]: value for name, value in values.items()}
        results.add(gauges, _measured(session, gauges, sample, more))
    return {"tensors": results.tensors()}


class _Results:
    """What the shadows showed, over all samples."""

    def __init__(self, shadows: Shadows) -> None:
        self._shadows = shadows
        self._largest: Dict[int, float] = {}
        self._worst: Dict[int, Dict[str, float]] = {}

    def add(self, gauges: Sequence[Gauge], values: Mapping[str, Any]) -> None:
        """Take what was measured on one sample."""
        readers: Dict[int, Dict[str, Any]] = {}
        for gauge in gauges:
            number = int(gauge.of)
            if gauge.kind == "largest":
                largest = max(values[gauge.name].tolist(), default=UNMEASURED)
                self._largest[number] = max(self._largest.get(number, UNMEASURED), largest)
            else:
                readers.setdefault(number, {})[gauge.kind] = values[gauge.name]
        for number, shown in readers.items():
            place = int(shown["error"].argmax()) if shown["error"].size else 0
            error = float(shown["error"][place]) if shown["error"].size else 0.0
            if error > self._worst.get(number, {"error": 0.0})["error"]:
                self._worst[number] = {kind: _plain(row[place]) for kind, row in shown.items()}

    def tensors(self) -> List[Dict[str, Any]]:
        """Return what `overflow` does."""
        shadows, found = self._shadows, []
        for number, root in enumerate(shadows.roots):
            if self._largest.get(number, UNMEASURED) == UNMEASURED:
                continue
            readers = [one for one in enumerate(shadows.readers) if number in one[1].roots]
            wrong = next((one for one in readers if one[0] in self._worst), None)
            on = {reader.node for index, reader in readers if not reader.ends or index in self._worst}
            ends = dict.fromkeys(reader.node for _, reader in readers if reader.node not in on)
            if not ends and wrong is None:
                # in the strict emulation a node is several steps, and only the last of them absorbs
                ends = dict.fromkeys(reader.node for _, reader in readers if reader.ends)
            harm = {"node": wrong[1].node, "op": wrong[1].op, **self._worst[wrong[0]]} if wrong else None
            found.append(
                {
                    **asdict(root),
                    "largest": _plain(self._largest[number]),
                    "harm": harm,
                    "absorbed_by": list(ends),
                    "unknown": shadows.unknown.get(number),
                    "output": number in shadows.handed,
                }
            )
        return found


def _gauged(graph: Any, numbers: Iterator[int], types: Sequence[Mapping[str, int]]) -> List[Gauge]:
    """Add a gauge to each float tensor that is made: zero, or no number where one of its values is not finite."""
    number = next(numbers)
    added = Additions(f"winnow__{number}")
    for node in graph.node:
        for name in node.output:
            if not is_raw(name) and types[number].get(name) == _FLOAT:
                zeros = added.add("Sub", [name, name])
                added.gauge("finite", f"{number}/{name}", added.add("ReduceSum", [zeros], keepdims=0))
        for attribute, body in bodies(node):
            added.gauges += add_owner_outputs(node, attribute, body, _gauged(body, numbers, types))
    graph.node.extend(added.nodes)
    return added.gauges


def _origins(graph: Any, suspects: Set[str]) -> Set[str]:
    """Return the top-level tensors that are not finite although what they are made of is."""
    found = set()
    for node in graph.node:
        if not any(f"0/{name}" in suspects for name in node.input):
            # of what an operator was taken apart into that of the operator counts
            made = {name: final(name) for name in node.output}
            made.update({name: plain(name) + end[end.rindex(WIDE) :] for name, end in made.items() if is_raw(name)})
            found |= {plain(name) for name, end in made.items() if f"0/{end}" in suspects}
    return found


def _good(path: Any, names: Sequence[str], samples: Sequence[Mapping[str, str]]) -> List[Dict[str, Any]]:
    """Return what float tensors are in high precision, for each sample."""
    import onnx

    if not path or not names:
        return [{} for _ in samples]
    model = onnx.load(path, load_external_data=False)
    made = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in names if name in made]
    there = {value.name for value in model.graph.output}
    for name in wanted:
        if name not in there:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = session_of(model, path)
    floats = {value.name for value in session.get_outputs() if value.type == "tensor(float)"}
    wanted = [name for name in wanted if name in floats]
    return [run_session(session, wanted, sample) for sample in samples]


def _measured(
    session: Any, gauges: Sequence[Gauge], sample: Mapping[str, str], more: Mapping[str, Any]
) -> Dict[str, Any]:
    """Return what each gauge shows on one sample, one number for each time that it was passed by."""
    values = run_session(session, [gauge.name for gauge in gauges], sample, more)
    return {name: value.reshape(-1) for name, value in values.items()}


def _is_broken(values: Any) -> bool:
    return any(number != UNMEASURED and not math.isfinite(number) for number in values.tolist())


def _plain(number: Any) -> float:
    return float(f"{float(number):.4g}")
