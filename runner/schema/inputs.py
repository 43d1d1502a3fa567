"""Settings of the `inputs` group: what is fed, and how cut tensors get their values and shapes."""

from __future__ import annotations

from enum import Enum
from typing import Any

from runner.schema.settings import PathUse, setting, settings


class CutPolicy(str, Enum):
    """How a value from outside the kept nodes enters a candidate."""

    # recorded: data-independent values as constants, activations as graph inputs
    auto = "auto"
    # recorded, all of them as graph inputs
    input = "input"
    # recorded, all of them as constants
    constant = "constant"
    # graph inputs with seeded random values instead of the recorded ones
    seeded = "seeded"


class OutputPolicy(str, Enum):
    """Which values of the kept nodes become outputs."""

    # all that the rest of the model (or the caller) reads
    frontier = "frontier"
    # only those that no kept node reads
    sinks = "sinks"


class ShapeInference(str, Enum):
    """Where shapes come from that were not recorded."""

    onnx = "onnx"
    symbolic = "symbolic"
    off = "off"


class Recording(str, Enum):
    """When the values of cut tensors are recorded."""

    # all of them once, before the search
    ahead = "ahead"
    # never: shapes by inference, values seeded
    off = "off"


@settings
class InputsSettings:
    """What every choice of inputs has."""

    name: str = "random"
    # concrete shapes for the model's inputs, by name: {x: [1, 3, 224, 224]}
    shapes: dict[str, list[int]] = setting({})
    cut: CutPolicy = CutPolicy.auto
    outputs: OutputPolicy = OutputPolicy.frontier
    shape_inference: ShapeInference = ShapeInference.onnx
    record: Recording = Recording.ahead
    # seconds that recording may take
    record_timeout: float = setting(600.0, least=0.001)


@settings
class RandomInputs(InputsSettings):
    """Seeded random values, the same for the same name and seed."""

    name: str = "random"
    seed: int = 1
    samples: int = setting(1, least=1)
    # value range by input name, [low, high), which its type must hold; `"": [low, high]` is for all others but bool and
    # string ones
    ranges: dict[str, list[Any]] = setting({})


@settings
class FilesInputs(InputsSettings):
    """Values from files."""

    name: str = "files"
    # an npz, an npy (one-input models), a test_data_set folder, a folder of samples, or a list of these
    path: Any = setting(None, path=PathUse.READ)


@settings
class PythonInputs(InputsSettings):
    """Values from a function of the user's: `samples() -> iterable of {name: array}`."""

    name: str = "python"
    file: str | None = setting(None, path=PathUse.READ)
    function: str = "samples"
