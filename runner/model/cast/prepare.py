"""A model made ready for `layers`: functions inlined, constants stored as such, all types inferred; in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, inliner

from runner.model import scopes
from runner.model.cast.formals import contrib_of
from runner.model.cast.inference import inferred
from runner.model.cast.layers import schemas_of
from runner.model.constants import lower_constants


def prepare(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the structure at ``args["model"]`` to ``args["out"]``, functions inlined, with the types of all tensors.

    No weights are read. ``contrib``: what is known of operators that ONNX does not define.
    Returns ``warning``: what could not be done, empty if nothing failed.
    """
    model = ModelProto()
    model.ParseFromString(Path(args["model"]).read_bytes())
    warnings = []
    if model.functions:
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # noqa: BLE001 - whatever native code raises
            warnings.append(f"functions could not be inlined ({error}): what calls them keeps its type")
    for graph in scopes.graphs_below(model.graph):
        lower_constants(graph, max(model.ir_version, 4))
    try:
        model = inferred(model, schemas_of(model, contrib_of(args.get("contrib", ()))))
    except Exception as error:  # noqa: BLE001 - whatever native inference raises
        warnings.append(f"ONNX shape inference failed ({error}): nodes of unknown types keep theirs")
    Path(args["out"]).write_bytes(model.SerializeToString())
    return {"warning": "; ".join(warnings), "graphs": sum(1 for _ in scopes.graphs_below(model.graph))}
