"""Small models in ONNX's own text form, for tests of all jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import ModelProto, NodeProto, numpy_helper


def parsed(text: str, *, opset: int = 17, ir: int = 8, **weights: Any) -> ModelProto:
    """Return the model of a graph's text; ``weights``: initializers that the text does not hold."""
    head = "" if text.lstrip().startswith("<") else f'<ir_version: {ir}, opset_import: ["": {opset}]> '
    model = onnx.parser.parse_model(head + text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items())
    return model


def saved(path: Path, text: str, *, opset: int = 17, ir: int = 8, **weights: Any) -> Path:
    """Write the model of a graph's text."""
    onnx.save(parsed(text, opset=opset, ir=ir, **weights), str(path))
    return path


def steps(text: str) -> list[NodeProto]:
    """Return nodes that are each called as the first that they give."""
    nodes = [*onnx.parser.parse_graph(f"g () => () {{ {text} }}").node]
    for node in nodes:
        node.name = node.output[0]
    return nodes
