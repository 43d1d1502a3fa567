"""Enumerations. Numbers are those of TensorRT for RTX 1.7 where a test can compare them.

TensorRT 11 renumbered its enumerations: here it has them in another order. Those of 10 and 11 are *not* the real
numbers; whoever looks members up by name does not see that.
"""

from enum import IntEnum

VERSIONS = {"10": "10.13.3.9", "11": "11.1.0.106", "rtx": "1.7.1.116"}


def _numbered(words: str) -> dict[str, int]:
    """Return names with their numbers; a name without one has that of its place."""
    pairs = (word.partition("=") for word in words.split())
    return {name: int(number or at) for at, (name, _, number) in enumerate(pairs)}


_RTX = {
    "BuilderFlag": _numbered(
        "DEBUG=2 REFIT=4 DISABLE_TIMING_CACHE=5 TF32=6 SPARSE_WEIGHTS=7 ERROR_ON_TIMING_CACHE_MISS=15 "
        "DISABLE_COMPILATION_CACHE=17 STRICT_NANS=23 EDITABLE_TIMING_CACHE=26"
    ),
    "DataType": _numbered("FLOAT HALF INT8 INT32 BOOL UINT8 FP8 BF16 INT64 INT4 FP4 E8M0"),
    "ErrorCode": _numbered("SUCCESS UNSUPPORTED_NODE=8"),
    "LayerInformationFormat": _numbered("ONELINE JSON"),
    "MemoryPoolType": _numbered("WORKSPACE"),
    "NetworkDefinitionCreationFlag": _numbered("STRONGLY_TYPED"),
    "OnnxParserFlag": _numbered("NATIVE_INSTANCENORM"),
    "PreviewFeature": {},
    "ProfilingVerbosity": _numbered("LAYER_NAMES_ONLY NONE DETAILED"),
    "TacticSource": _numbered("EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS"),
    "TensorIOMode": _numbered("NONE INPUT OUTPUT"),
    "TensorLocation": _numbered("DEVICE HOST"),
}
NAMES = [*_RTX, "ComputeCapability"]
_WEAK = {"FP16": 0, "INT8": 1, "OBEY_PRECISION_CONSTRAINTS": 9, "PREFER_PRECISION_CONSTRAINTS": 10, "FP8": 14}
_TEN = {
    **_RTX,
    "BuilderFlag": {**_WEAK, "BF16": 16, "INT4": 21, **_RTX["BuilderFlag"]},
    "NetworkDefinitionCreationFlag": {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1},
    "TacticSource": {"CUBLAS": 0, "EDGE_MASK_CONVOLUTIONS": 3, "JIT_CONVOLUTIONS": 4},
}
_ELEVEN = {name: {one: number for number, one in enumerate(sorted(of))} for name, of in _RTX.items()}

release = ""


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


def choose(chosen: str) -> None:
    """Make the enumerations of a release. A process has one."""
    global release  # noqa: PLW0603 - the process is one installation
    release = chosen
    for name, members in {"10": _TEN, "11": _ELEVEN, "rtx": _RTX}[chosen].items():
        globals()[name] = IntEnum(name, members)
    if chosen == "rtx":
        globals()["ComputeCapability"] = IntEnum("ComputeCapability", {"NONE": 0, "CURRENT": 1, "SM86": 86})
