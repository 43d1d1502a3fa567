"""Settings of the `target` and `reference` groups: two instances of the same backends."""

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from runner.schema.settings import PathUse, setting, settings

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
    # files say what the model's outputs should hold
    has_expected: ClassVar[bool] = False
    builds_engines: ClassVar[bool] = False

    name: str = "onnxruntime"
    model: str | None = setting(None, path=PathUse.READ | PathUse.MODEL)
    python: str | None = setting(None, path=PathUse.READ | PathUse.PROGRAM)

    def to_json(self) -> dict[str, Any]:
        """Return the backend's own settings as workers take them: without ``model``, ``map`` and ``python``."""
        plain = dataclasses.asdict(self) | {"implementation": self.implementation}
        for key in ("model", "map", "python"):
            plain.pop(key, None)
        return {key: value.value if isinstance(value, Enum) else value for key, value in plain.items()}

    def settled(self) -> "Self":
        """Return the settings with what no run has asked for decided."""
        return self

    @property
    def running(self) -> "BackendSettings":
        """The backend that runs models, where another one says what is right."""
        return self


class Rounding(str, Enum):
    """Whether low precision is rounded after every operator, as on a GPU; the CPU provider computes in fp32."""

    auto = "auto"
    on = "on"
    strict = "strict"
    off = "off"


@settings
class OnnxRuntimeBackend(BackendSettings):
    """ONNX Runtime, with any installed provider."""

    implementation = "runner.backends.onnxruntime:OnnxRuntime"

    name: str = "onnxruntime"
    providers: list[Any] = setting(["CPUExecutionProvider"])
    provider_libraries: dict[str, str] = setting({}, path=PathUse.READ | PathUse.LIBRARY)
    optimization: Optimization = Optimization.all
    session_options: dict[str, str] = setting({})
    config_entries: dict[str, str] = setting({})
    disabled_optimizers: list[str] = setting([])
    custom_ops: list[str] = setting([], path=PathUse.READ | PathUse.LIBRARY)
    threads: int = setting(1, least=0)
    rounding: Rounding = Rounding.auto

    def settled(self) -> "Self":
        """Return the settings with rounding off, where it is neither asked for nor decided."""
        return self if self.rounding is not Rounding.auto else dataclasses.replace(self, rounding=Rounding.off)


@settings
class OnnxReferenceBackend(BackendSettings):
    """The reference evaluator of the onnx package (numpy semantics, fp16 really rounds and overflows)."""

    implementation = "runner.backends.onnx_reference:OnnxReference"

    name: str = "onnx_reference"


class InnerValues(str, Enum):
    """What says what tensors inside a model should hold, where files say it of the outputs."""

    onnxruntime = "onnxruntime"
    onnx_reference = "onnx_reference"


@settings
class FilesBackend(OnnxRuntimeBackend):
    """Files with the expected outputs; of tensors inside the model a runtime says what they should hold."""

    has_expected = True

    name: str = "files"
    optimization: Optimization = Optimization.none
    path: Any = setting(None, path=PathUse.READ, in_context=False)
    inner: InnerValues = InnerValues.onnxruntime

    @property
    def running(self) -> BackendSettings:
        """The runtime, with the settings that it has here."""
        kind = OnnxRuntimeBackend if self.inner is InnerValues.onnxruntime else OnnxReferenceBackend
        held = {item.name: getattr(self, item.name) for item in dataclasses.fields(kind) if item.name != "name"}
        return kind(**held)

    def to_json(self) -> dict[str, Any]:
        """Return the settings of the runtime."""
        return self.running.to_json()


class Flavor(str, Enum):
    """Which TensorRT."""

    auto = "auto"
    tensorrt = "tensorrt"
    tensorrt_rtx = "tensorrt_rtx"


@settings
class TensorRtBackend(BackendSettings):
    """TensorRT 10, 11 or TensorRT for RTX. What is named here is looked up in the installed one."""

    implementation = "runner.backends.trt.engine:TensorRt"
    holds_inner_values = False
    builds_engines = True

    name: str = "tensorrt"
    flavor: Flavor = Flavor.auto
    flags: list[str] = setting([])
    clear_flags: list[str] = setting([])
    config: dict[str, Any] = setting({})
    strongly_typed: bool = True
    network_flags: list[str] = setting([])
    parser_flags: list[str] = setting([])
    tactic_sources: list[str] | None = None
    memory_pools: dict[str, Any] = setting({})
    preview_features: dict[str, bool] = setting({})
    compute_capabilities: list[str] = setting([])
    plugins: list[str] = setting([], path=PathUse.READ | PathUse.LIBRARY)
    profiles: dict[str, Any] = setting({})
    shape_values: dict[str, Any] = setting({})
    timing_cache: str | None = setting(None, path=PathUse.READ)
    runs: int = setting(1, least=1, most=1000)


def as_reference(backend: type[BackendSettings]) -> type[BackendSettings]:
    """Return the settings of a backend as the reference, which may have a map besides.

    ``map``: {tensor of the model: tensor of reference.model, or null for none}, or a JSON or YAML file that holds this.
    """
    field = setting(None, path=PathUse.READ, in_context=False)
    more = {"__annotations__": {"map": Any}, "map": field, "__module__": __name__, "__doc__": backend.__doc__}
    return settings(type(backend.__name__.replace("Backend", "Reference"), (backend,), more))


def map_of(reference: BackendSettings) -> Any:
    """Return what the user says of tensors that belong together; None: nothing."""
    return getattr(reference, "map", None)
