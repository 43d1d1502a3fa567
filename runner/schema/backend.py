"""Settings of the `target` and `reference` groups: two instances of the same backends."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from runner.schema.settings import limited, settings

if TYPE_CHECKING:
    from typing_extensions import Self


class Optimization(str, Enum):
    """Graph optimization levels of ONNX Runtime."""

    none = "none"
    basic = "basic"
    extended = "extended"
    layout = "layout"
    all = "all"


@settings
class BackendSettings:
    """What every backend has.

    ``implementation``: a class that workers import, with ``load``, ``run`` and ``prepare`` (see
    `runner.backends.run_model`). What the others say is what the rest of a run asks of any backend.
    """

    implementation: ClassVar[str] = ""
    # any tensor of a model can be looked at, which takes another run of it; false: what is built has outputs only
    holds_inner_values: ClassVar[bool] = True
    builds_engines: ClassVar[bool] = False

    name: str = "onnxruntime"
    # a model of its own (an fp32 original beside its converted child); null: the model under study
    model: str | None = None
    # another interpreter, so another version of the runtime; null: this one
    python: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the backend's own settings as workers take them: without ``model``, ``map`` and ``python``."""
        plain = dataclasses.asdict(self) | {"implementation": self.implementation}
        for key in ("model", "map", "python"):
            plain.pop(key, None)
        return {key: value.value if isinstance(value, Enum) else value for key, value in plain.items()}

    def settled(self) -> Self:
        """Return the settings with what no run has asked for decided."""
        return self


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

    implementation = "runner.backends.ort.onnxruntime:OnnxRuntime"

    name: str = "onnxruntime"
    # names, or {name: {option: value}}
    providers: list[Any] = field(default_factory=lambda: ["CPUExecutionProvider"])
    # {provider: path of its plugin library, or a Python package that tells it}
    provider_libraries: dict[str, str] = field(default_factory=dict)
    optimization: Optimization = Optimization.all
    # attributes of onnxruntime.SessionOptions, by name
    session_options: dict[str, str] = field(default_factory=dict)
    # session configuration entries, by key
    config_entries: dict[str, str] = field(default_factory=dict)
    # custom-op libraries
    custom_ops: list[str] = field(default_factory=list)
    threads: int = limited(1, least=0)
    # an emulation: fp16 and bf16 tensors are rounded as they are made, whatever computes them
    rounding: Rounding = Rounding.auto

    def settled(self) -> Self:
        """Return the settings with rounding off, where it is neither asked for nor decided."""
        return self if self.rounding is not Rounding.auto else dataclasses.replace(self, rounding=Rounding.off)


@settings
class OnnxReferenceBackend(BackendSettings):
    """The reference evaluator of the onnx package (numpy semantics, fp16 really rounds and overflows)."""

    implementation = "runner.backends.onnx_reference:OnnxReference"

    name: str = "onnx_reference"


class Flavour(str, Enum):
    """Which TensorRT."""

    # the first that is installed
    auto = "auto"
    tensorrt = "tensorrt"
    # TensorRT for RTX
    tensorrt_rtx = "tensorrt_rtx"


@settings
class TensorRtBackend(BackendSettings):
    """TensorRT 10, 11 or TensorRT for RTX. What is named here is looked up in the installed one."""

    implementation = "runner.backends.trt.engine_runner:TensorRt"
    holds_inner_values = False
    builds_engines = True

    name: str = "tensorrt"
    flavour: Flavour = Flavour.auto
    # members of BuilderFlag, set or cleared
    flags: list[str] = field(default_factory=list)
    clear_flags: list[str] = field(default_factory=list)
    # attributes of IBuilderConfig, by name
    config: dict[str, Any] = field(default_factory=dict)
    # false: the weak typing of TensorRT 10
    strongly_typed: bool = True
    # members of NetworkDefinitionCreationFlag and of OnnxParserFlag
    network_flags: list[str] = field(default_factory=list)
    parser_flags: list[str] = field(default_factory=list)
    # members of TacticSource; null: its default
    tactic_sources: list[str] | None = None
    # {member of MemoryPoolType: bytes, or a number with a unit}
    memory_pools: dict[str, Any] = field(default_factory=dict)
    # {member of PreviewFeature: true or false}
    preview_features: dict[str, bool] = field(default_factory=dict)
    # GPUs that an engine is built for ahead of time: SM86, 8.6 or CURRENT; empty: its default
    compute_capabilities: list[str] = field(default_factory=list)
    # plugin libraries
    plugins: list[str] = field(default_factory=list)
    # {input: shape} or {input: {min: .., opt: .., max: ..}}; other dynamic inputs get the samples' shapes
    profiles: dict[str, Any] = field(default_factory=dict)
    # the same for the values of inputs that hold a shape
    shape_values: dict[str, Any] = field(default_factory=dict)
    # a file whose timings all builds reuse; null: those of the run's first build
    timing_cache: str | None = None
    # how often an engine is executed on each sample; executions that differ are reported
    runs: int = limited(1, least=1, most=1000)


def as_reference(backend: type[BackendSettings]) -> type[BackendSettings]:
    """Return the settings of a backend as the reference, which may have a map besides.

    ``map``: {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this.
    """
    more = {"__annotations__": {"map": Any}, "map": None, "__module__": __name__, "__doc__": backend.__doc__}
    return settings(type(backend.__name__.replace("Backend", "Reference"), (backend,), more))


OnnxRuntimeReference = as_reference(OnnxRuntimeBackend)
OnnxReferenceReference = as_reference(OnnxReferenceBackend)
TensorRtReference = as_reference(TensorRtBackend)


def map_of(reference: BackendSettings) -> Any:
    """Return what the user says of tensors that belong together; None: nothing."""
    return getattr(reference, "map", None)
