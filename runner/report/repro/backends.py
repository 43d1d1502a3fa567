"""How a backend ran, as the source of a function that runs it so again, and as values that a build needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.backends.ort.onnxruntime import LEVELS
from runner.backends.trt.builder_options import bytes_of, capability_of
from runner.backends.trt.load_library import MODULES
from runner.backends.trt.optimization_profiles import range_of
from runner.report.repro.compose import template
from runner.report.repro.literal import call, inline
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, Rounding, TensorRtBackend

_EXTENSIONS = "onnxruntime_extensions"  # the package that brings custom operators, and is known by its name
ROUNDED = "rounded.onnx"
"""The model that is run where low precision is emulated."""
RUNTIMES = frozenset({"onnxruntime", "onnx_reference", "tensorrt"})
"""What a script runs by itself; other packages may add more."""


def rounds(settings: BackendSettings) -> bool:
    """Whether a model that rounds was run in place of the model itself."""
    return isinstance(settings, OnnxRuntimeBackend) and settings.rounding in (Rounding.on, Rounding.strict)


def runner(role: str, settings: BackendSettings, cwd: Path) -> str:
    """Return the source of a function ``role(model, inputs)`` that runs a model as it was run.

    ``cwd``: where the user stands, whom paths are relative to.
    """
    source = template(settings.name).replace("def run(", f"def {role}(").replace("ROLE", role)
    if not isinstance(settings, OnnxRuntimeBackend):
        return source
    disabled, plugged = settings.disabled_optimizers, [*settings.provider_libraries]
    used = "None" if plugged else "providers"  # a session takes those of libraries from its options
    used += f", disabled_optimizers={inline(disabled)}" if disabled else ""
    before = [f"model = str(HERE / {inline(ROUNDED)})"] if rounds(settings) else []
    for word, text in (
        ("OPTIONS", "\n    ".join([*before, *session_options(settings, cwd)])),
        ("PROVIDERS", inline(providers(settings))),
        (", *PLUGGED", f", *{inline(plugged)}" if plugged else ""),
        ("USED", used),
    ):
        source = source.replace(word, text)
    return source


def providers(settings: OnnxRuntimeBackend) -> list[Any]:
    """Return the providers: the name of each, or that and its options."""
    found: list[Any] = []
    for one in settings.providers:
        found += [(name, dict(given or {})) for name, given in one.items()] if isinstance(one, Mapping) else [one]
    return found


def session_options(settings: OnnxRuntimeBackend, cwd: Path) -> list[str]:
    """Return the lines that make the options of a session, as ``options``."""
    told = {one[0]: one[1] for one in providers(settings) if isinstance(one, tuple)}
    level = "ORT_DISABLE_ALL" if rounds(settings) else LEVELS[settings.optimization.value]
    lines = [
        "options = onnxruntime.SessionOptions()",
        f"options.intra_op_num_threads = {settings.threads:d}",
        f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{level}",
    ]
    for name, text in settings.session_options.items():
        lines.append(call("set_option", name, str(text), on="options"))
    for name, text in settings.config_entries.items():
        lines.append(call("options.add_session_config_entry", name, str(text)))
    lines += [call("register", _library(library, cwd), on="options") for library in settings.custom_ops]
    for name, path in settings.provider_libraries.items():
        library = _library(path, cwd) if "/" in path or path.endswith((".so", ".dylib")) else path
        lines.append(call("plug_in", name, library, told.get(name, {}), on="options"))
    return lines


def _library(library: str, cwd: Path) -> str:
    return library if library == _EXTENSIONS else str(cwd / Path(library).expanduser())


def values_of(settings: TensorRtBackend, cwd: Path) -> dict[str, Any]:
    """Return what is set of a build, with whole paths, sizes in bytes, and ranges as three lists."""
    wanted = settings.flavor.value
    return {
        **vars(settings),
        "modules": [name for flavor, names in MODULES.items() if wanted in (flavor, "auto") for name in names],
        "plugins": [_library(path, cwd) for path in settings.plugins],
        "memory_pools": {name: bytes_of(name, size) for name, size in settings.memory_pools.items()},
        "compute_capabilities": [capability_of(str(one)) for one in settings.compute_capabilities],
        "profiles": {name: range_of(name, given) for name, given in settings.profiles.items()},
        "shape_values": {name: range_of(name, given) for name, given in settings.shape_values.items()},
    }
