"""Options of a build: by name as YAML gives them, and the ranges in which inputs may move.

Builder options by name, as YAML gives them: whatever this TensorRT does not have is an error before any work.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, B905
from __future__ import annotations

import math
import operator
import re
from typing import Any, Callable, Iterable, List, Mapping, Sequence, Tuple

from runner.backends import tensor_files
from runner.backends.errors import StageError, library_path, naming, set_attribute
from runner.backends.trt.library import Library, Messages

_UNITS = {"": 1, "B": 1, "K": 2**10, "KIB": 2**10, "M": 2**20, "MIB": 2**20, "G": 2**30, "GIB": 2**30}
_STRONG = "STRONGLY_TYPED"
# members of BuilderFlag that let TensorRT 10 choose precisions
_WEAK = (
    *("FP16", "BF16", "INT8", "FP8", "INT4", "FP4"),
    *("OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"),
)


def network_flags(library: Library, settings: Mapping[str, Any]) -> int:
    """Return the bits for ``create_network``. Networks are strongly typed where there is a choice.

    TensorRT 11 and RTX know nothing else; ``strongly_typed: false`` is for the weak typing of TensorRT 10.
    """
    names = [str(name) for name in settings.get("network_flags") or []]
    known = library.members("NetworkDefinitionCreationFlag")
    if settings.get("strongly_typed", True) and _STRONG in known and _STRONG not in names:
        names.append(_STRONG)
    if not settings.get("strongly_typed", True) and "FP16" not in library.members("BuilderFlag"):
        raise StageError(
            "setup",
            "UnknownSetting",
            f"strongly_typed=false is not in {library}: its networks are always strongly typed",
        )
    return _bits(library, "NetworkDefinitionCreationFlag", "network_flags", names)


def _bits(library: Library, enumeration: str, key: str, names: Iterable[Any]) -> int:
    return sum({1 << int(library.member(enumeration, key, str(name))) for name in names})


def set_flags(
    library: Library, settings: Mapping[str, Any], key: str, enumeration: str, setter: Callable[[Any], object]
) -> None:
    """Hand each member that the setting ``key`` names to a setter. Raises StageError (setup)."""
    for name in settings.get(key) or []:
        flag = library.member(enumeration, key, str(name))
        with naming(f"{key}={name}: {library}"):
            setter(flag)


def plugins(settings: Mapping[str, Any], builder: Any, said: Messages) -> None:
    """Load plugin libraries. Raises StageError (setup) for one that is not there or cannot be loaded."""
    for path in settings.get("plugins") or []:
        place = library_path("plugins", str(path))
        with naming(f"plugins={path}"):
            said.errors.clear()
            # what cannot be loaded gives no handle, and the reason goes to the logger
            if builder.get_plugin_registry().load_library(place) is None:
                raise OSError(said.errors[0].strip() if said.errors else "it is no plugin library")


def configure(library: Library, settings: Mapping[str, Any], config: Any) -> None:
    """Set everything of ``settings`` on an ``IBuilderConfig``. Raises StageError (setup) for what it does not have."""
    # the layers' metadata name the ONNX nodes they were made from
    config.profiling_verbosity = library.members("ProfilingVerbosity")["DETAILED"]
    for name in settings.get("flags") or []:
        _typing(library, settings, str(name))
    set_flags(library, settings, "flags", "BuilderFlag", config.set_flag)
    set_flags(library, settings, "clear_flags", "BuilderFlag", config.clear_flag)
    for name, value in (settings.get("config") or {}).items():
        set_attribute(config, "config", str(name), value, library.lacks)
    for name, size in (settings.get("memory_pools") or {}).items():
        pool = library.member("MemoryPoolType", "memory_pools", str(name))
        limit = bytes_of(f"memory_pools.{name}", size)
        with naming(f"memory_pools.{name}={size}: {library}"):
            config.set_memory_pool_limit(pool, limit)
    for name, wanted in (settings.get("preview_features") or {}).items():
        feature = library.member("PreviewFeature", "preview_features", str(name))
        with naming(f"preview_features.{name}={wanted}: {library}"):
            config.set_preview_feature(feature, bool(wanted))
    if settings.get("tactic_sources") is not None:
        bits = _bits(library, "TacticSource", "tactic_sources", settings["tactic_sources"])
        with naming(f"tactic_sources={settings['tactic_sources']}: {library}"):
            if not config.set_tactic_sources(bits):
                raise ValueError("these together are refused")
    _capabilities(library, settings.get("compute_capabilities") or [], config)


def _typing(library: Library, settings: Mapping[str, Any], name: str) -> None:
    """Refuse a flag of weak typing for a network that is strongly typed: no build with it says anything of the model.

    Raises StageError (setup).
    """
    known, flags = library.members("NetworkDefinitionCreationFlag"), library.members("BuilderFlag")
    weak = _STRONG in known and not network_flags(library, settings) & 1 << int(known[_STRONG])
    if name.upper() not in _WEAK or ("FP16" in flags and weak):
        return
    message = "networks are strongly typed, so that the model says what runs in which precision. What can run in a "
    message += "lower one is found by strategy=precision"
    if "FP16" in flags:
        message = f"flags={name}: {message}; for the weak typing of {library}: strongly_typed=false"
    else:
        message = f"flags={name} is not in {library}: {message}"
    raise StageError("setup", "BadSetting", message)


def _capabilities(library: Library, wanted: List[Any], config: Any) -> None:
    """Set the compute capabilities that an engine is built for ahead of time: SM86, 8.6 or current."""
    if not wanted:
        return
    if not hasattr(config, "set_compute_capability"):
        raise library.lacks("compute_capabilities", str(wanted[0]), ("none: it builds for the GPU it runs on",))
    chosen = [library.member("ComputeCapability", "compute_capabilities", capability_of(str(one))) for one in wanted]
    with naming(f"compute_capabilities={wanted}: {library}"):
        config.num_compute_capabilities = len(chosen)
        for number, capability in enumerate(chosen):
            if not config.set_compute_capability(capability, number):
                raise ValueError(f"{wanted[number]} is refused")


def capability_of(text: str) -> str:
    """Return the name of a member of ComputeCapability: SM86 for 8.6, 86 or sm_86."""
    match = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)", text, re.IGNORECASE)
    return f"SM{match.group(1)}{match.group(2)}" if match else text


def bytes_of(key: str, size: Any) -> int:
    """Return bytes: a number, or one with a unit (64M, 1GiB)."""
    match = re.fullmatch(r"(\d+) *([A-Za-z]*)", str(size).strip())
    if match is None or match.group(2).upper() not in _UNITS:
        raise StageError("setup", "BadSetting", f"{key}={size}: give bytes, or a number with a unit: 512M, 1GiB")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]


# Optimization profiles: in which ranges inputs may move, from the samples, or as the user says.
#
# A dynamic input gets the least and the largest of each dimension over the samples, and the first sample's shape as
# the one to optimize for. An input that holds a shape needs *values* besides: the same, of its elements.

Range = Tuple[List[int], List[int], List[int]]
"""The least, the one to optimize for, the largest."""
_ENDS = ("min", "opt", "max")


def add(
    library: Library, settings: Mapping[str, Any], samples: Sequence[Mapping[str, str]], parts: Tuple[Any, Any, Any]
) -> None:
    """Add a profile to ``config`` if an input needs one; ``parts``: builder, network, config.

    Raises StageError: setup (MissingFeed) for an input of which no sample tells, setup (BadSetting) for ranges that are
    none, untried for those of the samples that TensorRT refuses.
    """
    builder, network, config = parts
    profile, needed = builder.create_optimization_profile(), False
    shapes, values = settings.get("profiles") or {}, settings.get("shape_values") or {}
    inputs = {tensor.name: tensor for tensor in (network.get_input(i) for i in range(network.num_inputs))}
    for name, tensor in inputs.items():
        declared = list(tensor.shape)
        if -1 in declared:
            chosen = range_of(f"profiles.{name}", shapes[name]) if name in shapes else _shapes(name, samples)
            if any(size < 0 for one in chosen for size in one):
                raise _bad(f"profiles.{name}", list(chosen))
            _fits(f"profiles.{name}", chosen, declared)
            _set(library, profile.set_shape, f"profiles.{name}", chosen, shapes)
            needed = True
        if tensor.is_shape_tensor:
            chosen = range_of(f"shape_values.{name}", values[name]) if name in values else _values(name, samples)
            _counted(f"shape_values.{name}", chosen, declared)
            _set(library, profile.set_shape_input, f"shape_values.{name}", chosen, values)
            needed = True
    if needed and config.add_optimization_profile(profile) < 0:
        names = ", ".join(inputs)
        raise _refused(f"the profile of the inputs {names} is refused by {library}", given=bool(shapes or values))


def _set(library: Library, setter: Any, key: str, chosen: Range, ranges: Mapping[str, Any]) -> None:
    name = key.partition(".")[2]
    try:
        taken = setter(name, *chosen)
    except Exception as error:
        raise _refused(f"{key}={list(chosen)}: {library}: {error}", given=name in ranges) from error
    if taken is False:  # the bindings return nothing where it is taken
        raise _refused(f"{key}={list(chosen)} is refused by {library}", given=name in ranges)


def _refused(message: str, *, given: bool) -> StageError:
    """Return the error for ranges that TensorRT does not take: the user's, or those of the samples."""
    return StageError("setup" if given else "untried", "BadSetting" if given else "Refused", message)


def range_of(key: str, ranges: Any) -> Range:
    """Return the user's range: one list for all three, [min, opt, max], or a mapping with these keys."""
    if isinstance(ranges, Mapping):
        if sorted(ranges) != sorted(_ENDS):
            raise _bad(key, ranges)
        ranges = [ranges[end] for end in _ENDS]
    if not isinstance(ranges, (list, tuple)) or not ranges:
        raise _bad(key, ranges)
    if not isinstance(ranges[0], (list, tuple)):
        ranges = [ranges] * 3
    lists = len(ranges) == 3 and all(isinstance(one, (list, tuple)) for one in ranges)
    if not lists or len({len(one) for one in ranges}) != 1:
        raise _bad(key, ranges)
    try:
        low, best, high = ([operator.index(size) for size in one] for one in ranges)
    except (TypeError, ValueError):
        raise _bad(key, ranges) from None
    if any(not a <= b <= c for a, b, c in zip(low, best, high)):
        raise _bad(key, ranges)
    return low, best, high


def _bad(key: str, ranges: Any) -> StageError:
    message = f"{key}={ranges}: give [1, 3] or {{min: [1, 3], opt: [4, 3], max: [8, 3]}}, with min <= opt <= max"
    return StageError("setup", "BadSetting", message)


def _fits(key: str, chosen: Range, declared: List[int]) -> None:
    fixed = list(declared)
    for one in chosen:
        if len(one) != len(fixed) or any(mine not in (size, -1) and mine != -1 for size, mine in zip(one, fixed)):
            shape = ", ".join("?" if size == -1 else str(size) for size in declared)
            raise StageError("setup", "BadSetting", f"{key}={list(chosen)} does not fit the input's shape [{shape}]")


def _counted(key: str, chosen: Range, declared: List[int]) -> None:
    """Refuse as many values as the input does not hold."""
    held = math.prod(declared)
    if held >= 0 and len(chosen[0]) != held:
        message = f"{key}={list(chosen)}: the input holds {held} value{'s' * (held != 1)}, not {len(chosen[0])}"
        raise StageError("setup", "BadSetting", message)


def _shapes(name: str, samples: Sequence[Mapping[str, str]]) -> Range:
    return _over(name, [list(tensor.shape) for tensor in _recorded(name, samples)])


def _values(name: str, samples: Sequence[Mapping[str, str]]) -> Range:
    return _over(name, [[int(value) for value in tensor.array().reshape(-1)] for tensor in _recorded(name, samples)])


def _recorded(name: str, samples: Sequence[Mapping[str, str]]) -> List[tensor_files.Tensor]:
    found = [tensor_files.read(sample[name]) for sample in samples if name in sample]
    if not found:
        message = (
            f"the input {name!r} has no fixed shape and no value tells one: give target.profiles={{{name}: "
            "{min: [..], opt: [..], max: [..]}}"
        )
        raise StageError("setup", "MissingFeed", message)
    return found


def _over(name: str, rows: List[List[int]]) -> Range:
    if len({len(row) for row in rows}) != 1:
        raise StageError("setup", "MissingFeed", f"the samples of the input {name!r} differ in rank")
    columns = list(zip(*rows))
    return [min(column) for column in columns], rows[0], [max(column) for column in columns]
