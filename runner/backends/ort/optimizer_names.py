"""The optimizers of the installed ONNX Runtime: graph transformers and rewrite rules that can be disabled by name."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH123
from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Dict, FrozenSet, Iterable, List

from runner.backends.errors import choose

_ENDS = (
    rb"Fusion|Elimination|Transformer|Optimizer|Folding|Sharing|Remover|Rewrite|Approximation|Quantization|"
    rb"Consolidation|Decomposition|Replacement|DummyDq|ToInitializer"
)
# names as they are registered
_NAME = re.compile(rb"\0((?:Fuse|Eliminate)[A-Z]\w{2,40}|[A-Z]\w{2,60}?(?:%b)\w{0,8})(?=\0)" % _ENDS)
# names of the classes, under which most are registered; of a short name the compiler leaves no string
_CLASS = re.compile(rb"\0N11onnxruntime\d{1,2}([A-Z]\w{2,60}?(?:%b))E(?=\0)" % _ENDS)
_NO_NAME = re.compile(r"N\d+onnxruntime|Add[A-Z]|Apply|Generate|Fuse(Initializer|SubGraph)|GraphTransf|\w+_$")

# names that are no strings of their own in the library: short ones are inlined, others share a longer one's end
_HIDDEN = (
    "AttentionFusion",
    "ConcatSliceElimination",
    "ConvActivationFusion",
    "DoubleQDQPairsRemover",
    "EnsureUniqueDQForNodeUnit",
    "GatherSliceToSplitFusion",
    "GeluFusion",
    "LayerNormFusion",
    "MatMulAddFusion",
    "MatMulNBitsFusion",
    "PropagateCastOps",
    "ShapeToInitializer",
    "SkipLayerNormFusion",
    "TransposeOptimizer",
)


def optimizers(_args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``names`` of what may be an optimizer that can be disabled: the runtime lists none, its library has them.

    Some of the names are none: disabling those does nothing.
    """
    return {"names": sorted(_possible())}


def known_optimizers(names: Iterable[str]) -> List[str]:
    """Return ``names``. Raises StageError (setup) for one that the library does not hold.

    ONNX Runtime itself takes any name, and ignores those that it does not know.
    """
    wanted = [str(name) for name in names]
    unknown = [name for name in wanted if name not in _possible()] if wanted else []
    library = _library() if unknown else b""
    for name in unknown:
        if b"\0" + name.encode() + b"\0" not in library:
            raise choose("disabled_optimizers", name, _possible())
    return wanted


@lru_cache(maxsize=1)  # it takes half a second
def _possible() -> FrozenSet[str]:
    library = _library()
    found = {match.decode() for pattern in (_NAME, _CLASS) for match in pattern.findall(library)} | set(_HIDDEN)
    return frozenset(name for name in found if not _NO_NAME.match(name))


def _library() -> bytes:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    with open(state.__file__, "rb") as file:
        return file.read()
