"""Settings of the `target` and `reference` groups: two instances of the same backends."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from enum import Enum
from typing import Any

from runner.schema.settings import limited, settings


class Optimization(str, Enum):
    """Graph optimisation levels of ONNX Runtime."""

    none = "none"
    basic = "basic"
    extended = "extended"
    layout = "layout"
    all = "all"


@settings
class BackendSettings:
    """What every backend has."""

    name: str = "onnxruntime"
    # a model of its own (an fp32 original beside its converted child); null: the model under study
    model: str | None = None
    # another interpreter, so another version of the runtime; null: this one
    python: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the backend's own settings as workers take them: without ``model``, ``map`` and ``python``."""
        plain = dataclasses.asdict(self)
        for key in ("model", "map", "python"):
            plain.pop(key, None)
        return {key: value.value if isinstance(value, Enum) else value for key, value in plain.items()}


@settings
class OnnxRuntimeBackend(BackendSettings):
    """ONNX Runtime, with any installed provider."""

    name: str = "onnxruntime"
    # names, or {name: {option: value}}
    providers: list[Any] = field(default_factory=lambda: ["CPUExecutionProvider"])
    optimization: Optimization = Optimization.all
    # attributes of onnxruntime.SessionOptions, by name
    session_options: dict[str, str] = field(default_factory=dict)
    # session configuration entries, by key
    config_entries: dict[str, str] = field(default_factory=dict)
    # custom-op libraries
    custom_ops: list[str] = field(default_factory=list)
    threads: int = limited(1, least=0)


@settings
class OnnxReferenceBackend(BackendSettings):
    """The reference evaluator of the onnx package (numpy semantics, fp16 really rounds and overflows)."""

    name: str = "onnx_reference"


@settings
class OnnxRuntimeReference(OnnxRuntimeBackend):
    """ONNX Runtime as the reference."""

    # {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this
    map: Any = None


@settings
class OnnxReferenceReference(OnnxReferenceBackend):
    """The reference evaluator as the reference."""

    # {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this
    map: Any = None


def map_of(reference: BackendSettings) -> Any:
    """Return what the user says of tensors that belong together; None: nothing."""
    return getattr(reference, "map", None)
