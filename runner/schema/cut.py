"""Settings of the `cut` section: how the nodes that are kept become a model of their own."""

from enum import Enum

from runner.schema.settings import setting, settings


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

    auto = "auto"
    all = "all"
    lazy = "lazy"
    off = "off"
    ahead = "ahead"  # what `all` was called


@settings
class CutSettings:
    """Where the values and shapes of cut tensors come from."""

    policy: CutPolicy = CutPolicy.auto
    outputs: OutputPolicy = OutputPolicy.frontier
    record: RecordMode = RecordMode.auto
    memory: str | None = setting(None, in_context=False)
    disk: str | None = setting(None, in_context=False)
    shapes: ShapeInference = ShapeInference.onnx

    @property
    def records(self) -> bool:
        """Whether values are recorded; which of them are kept makes no difference to a verdict."""
        return self.record is not RecordMode.off
