"""A model made ready for `layers`: functions inlined, constants and limits stored as such, all types inferred.

In a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from runner.jobs.precision.cast.infer_types import inferred
from runner.jobs.precision.cast.inline_functions import inlined
from runner.jobs.precision.cast.layers import schemas_of
from runner.jobs.precision.cast.operator_types import contrib_of
from runner.jobs.precision.cast.read_weights import take_in_limits
from runner.model.graph import scopes
from runner.model.passes.lift_constants import lower_constants


def prepare(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the structure at ``args["model"]`` to ``args["out"]``, functions inlined, with the types of all tensors.

    ``contrib``: what is known of operators that ONNX does not define. Of the weights outside only scales of quantized
    tensors are read. Returns ``warning``: what could not be done, empty if nothing failed, and ``inlined``: where nodes
    come from that were in a function, by their first output.
    """
    path = Path(args["model"])
    model = ModelProto.FromString(path.read_bytes())
    warnings = []
    origins: dict[str, str] = {}
    if model.functions:
        try:
            model, origins = inlined(model)
        except Exception as error:  # noqa: BLE001 - whatever native code raises
            warnings.append(f"functions could not be inlined ({error}): what calls them keeps its type")
    for graph in scopes.graphs_below(model.graph):
        lower_constants(graph, max(model.ir_version, 4))
    take_in_limits(model, path.parent)
    try:
        model = inferred(model, schemas_of(model, contrib_of(args.get("contrib", ()))))
    except Exception as error:  # noqa: BLE001 - whatever native inference raises
        warnings.append(f"ONNX shape inference failed ({error}): nodes of unknown types keep theirs")
    Path(args["out"]).write_bytes(model.SerializeToString())
    graphs = sum(1 for _ in scopes.graphs_below(model.graph))
    return {"warning": "; ".join(warnings), "graphs": graphs, "inlined": origins}
