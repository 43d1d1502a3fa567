"""Settings of the `inputs` group: what is fed, and how cut tensors get their values and shapes."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any, ClassVar

from runner.schema.settings import limited, settings


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
    """What every choice of inputs has.

    ``implementation``: called with these settings, what the model declares of its inputs, the workers, and a folder for
    tensor files, it returns the samples.
    """

    implementation: ClassVar[str] = ""

    name: str = "random"
    # concrete shapes for the model's inputs, by name: {x: [1, 3, 224, 224]}
    shapes: dict[str, list[int]] = field(default_factory=dict)
    cut: CutPolicy = CutPolicy.auto
    outputs: OutputPolicy = OutputPolicy.frontier
    shape_inference: ShapeInference = ShapeInference.onnx
    record: Recording = Recording.ahead
    # seconds that recording may take
    record_timeout: float = limited(600.0, least=0.001)


@settings
class RandomInputs(InputsSettings):
    """Seeded random values, the same for the same name and seed."""

    implementation = "runner.inputs.random:from_random"

    name: str = "random"
    seed: int = 1
    samples: int = limited(1, least=1)
    # value range by input name, [low, high), which its type must hold; `"": [low, high]` is for all others but bool and
    # string ones
    ranges: dict[str, list[Any]] = field(default_factory=dict)


@settings
class FilesInputs(InputsSettings):
    """Values from files."""

    implementation = "runner.inputs.files:from_files"

    name: str = "files"
    # an npz, an npy (one-input models), a test_data_set folder, a folder of samples, or a list of these
    path: Any = None


@settings
class PythonInputs(InputsSettings):
    """Values from a function of the user's: `samples() -> iterable of {name: array}`."""

    implementation = "runner.inputs.python:from_python"

    name: str = "python"
    file: str | None = None
    function: str = "samples"
