"""Optimization profiles: in which ranges inputs may move, from the samples, or as the user says.

A dynamic input gets the least and the largest of each dimension over the samples, and the first sample's shape as the
one to optimize for. An input that holds a shape needs *values* besides: the same, of its elements.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, B905
from __future__ import annotations

import math
import operator
from typing import Any, List, Mapping, Sequence, Tuple

from runner.backends.errors import StageError
from runner.backends.trt.load_library import Library
from runner.backends.values import tensor_proto

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


def _recorded(name: str, samples: Sequence[Mapping[str, str]]) -> List[tensor_proto.Tensor]:
    found = [tensor_proto.read(sample[name]) for sample in samples if name in sample]
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
