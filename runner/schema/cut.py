"""Settings of the `cut` section: how the nodes that are kept become a model of their own."""

from __future__ import annotations

from enum import Enum

from runner.schema.settings import settings


class CutPolicy(str, Enum):
    """How a value from outside the kept nodes enters a candidate."""

    auto = "auto"
    input = "input"
    constant = "constant"
    seeded = "seeded"


class OutputPolicy(str, Enum):
    """Which values of the kept nodes become outputs."""

    frontier = "frontier"
    sinks = "sinks"


class ShapeInference(str, Enum):
    """Where shapes come from that were not recorded."""

    onnx = "onnx"
    symbolic = "symbolic"
    off = "off"


class RecordMode(str, Enum):
    """When the values of cut tensors are recorded."""

    ahead = "ahead"
    off = "off"


@settings
class CutSettings:
    """Where the values and shapes of cut tensors come from."""

    policy: CutPolicy = CutPolicy.auto
    outputs: OutputPolicy = OutputPolicy.frontier
    record: RecordMode = RecordMode.ahead
    shapes: ShapeInference = ShapeInference.onnx
