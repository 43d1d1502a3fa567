"""Settings of the `target` and `reference` groups: two instances of the same backends."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from runner.schema.settings import PathUse, setting, settings


class Optimization(str, Enum):
    """Graph optimization levels of ONNX Runtime."""

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
    model: str | None = setting(None, path=PathUse.READ | PathUse.MODEL)
    # another interpreter, so another version of the runtime; null: this one
    python: str | None = setting(None, path=PathUse.READ | PathUse.PROGRAM)

    def to_json(self) -> dict[str, Any]:
        """Return the backend's own settings as workers take them: without ``model``, ``map`` and ``python``."""
        plain = dataclasses.asdict(self)
        for key in ("model", "map", "python"):
            plain.pop(key, None)
        return {key: value.value if isinstance(value, Enum) else value for key, value in plain.items()}


class Rounding(str, Enum):
    """Whether low precision is rounded after every operator, as on a GPU; the CPU provider computes in fp32."""

    # where precision is what is searched, and only the CPU provider runs
    auto = "auto"
    on = "on"
    # inside reductions, norms and poolings too, and composites as importers lower them
    strict = "strict"
    off = "off"


@settings
class OnnxRuntimeBackend(BackendSettings):
    """ONNX Runtime, with any installed provider."""

    name: str = "onnxruntime"
    # names, or {name: {option: value}}
    providers: list[Any] = setting(["CPUExecutionProvider"])
    # {provider: path of its plugin library, or a Python package that tells it}
    provider_libraries: dict[str, str] = setting({}, path=PathUse.READ | PathUse.LIBRARY)
    optimization: Optimization = Optimization.all
    # attributes of onnxruntime.SessionOptions, by name
    session_options: dict[str, str] = setting({})
    # session configuration entries, by key
    config_entries: dict[str, str] = setting({})
    # custom-op libraries
    custom_ops: list[str] = setting([], path=PathUse.READ | PathUse.LIBRARY)
    threads: int = setting(1, least=0)
    # an emulation: fp16 and bf16 tensors are rounded as they are made, whatever computes them
    rounding: Rounding = Rounding.auto


@settings
class OnnxReferenceBackend(BackendSettings):
    """The reference evaluator of the onnx package (numpy semantics, fp16 really rounds and overflows)."""

    name: str = "onnx_reference"


class Flavor(str, Enum):
    """Which TensorRT."""

    # the first that is installed
    auto = "auto"
    tensorrt = "tensorrt"
    # TensorRT for RTX
    tensorrt_rtx = "tensorrt_rtx"


@settings
class TensorRtBackend(BackendSettings):
    """TensorRT 10, 11 or TensorRT for RTX. What is named here is looked up in the installed one."""

    name: str = "tensorrt"
    flavor: Flavor = Flavor.auto
    # members of BuilderFlag, set or cleared
    flags: list[str] = setting([])
    clear_flags: list[str] = setting([])
    # attributes of IBuilderConfig, by name
    config: dict[str, Any] = setting({})
    # false: the weak typing of TensorRT 10
    strongly_typed: bool = True
    # members of NetworkDefinitionCreationFlag and of OnnxParserFlag
    network_flags: list[str] = setting([])
    parser_flags: list[str] = setting([])
    # members of TacticSource; null: its default
    tactic_sources: list[str] | None = None
    # {member of MemoryPoolType: bytes, or a number with a unit}
    memory_pools: dict[str, Any] = setting({})
    # {member of PreviewFeature: true or false}
    preview_features: dict[str, bool] = setting({})
    # GPUs that an engine is built for ahead of time: SM86, 8.6 or CURRENT; empty: its default
    compute_capabilities: list[str] = setting([])
    # plugin libraries
    plugins: list[str] = setting([], path=PathUse.READ | PathUse.LIBRARY)
    # {input: shape} or {input: {min: .., opt: .., max: ..}}; other dynamic inputs get the samples' shapes
    profiles: dict[str, Any] = setting({})
    # the same for the values of inputs that hold a shape
    shape_values: dict[str, Any] = setting({})
    # a file whose timings all builds reuse; null: those of the run's first build
    timing_cache: str | None = setting(None, path=PathUse.READ)
    # how often an engine is executed on each sample; executions that differ are reported
    runs: int = setting(1, least=1, most=1000)


@settings
class TensorRtReference(TensorRtBackend):
    """TensorRT as the reference."""

    # {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this
    map: Any = setting(None, path=PathUse.READ, in_context=False)


@settings
class OnnxRuntimeReference(OnnxRuntimeBackend):
    """ONNX Runtime as the reference."""

    # {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this
    map: Any = setting(None, path=PathUse.READ, in_context=False)


@settings
class OnnxReferenceReference(OnnxReferenceBackend):
    """The reference evaluator as the reference."""

    # {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this
    map: Any = setting(None, path=PathUse.READ, in_context=False)


def map_of(reference: BackendSettings) -> Any:
    """Return what the user says of tensors that belong together; None: nothing."""
    return getattr(reference, "map", None)
