"""A small stand-in for the Python APIs of TensorRT 10, 11 and TensorRT for RTX, and for ``cuda.bindings.runtime``.

Names, arguments, return values and errors are those of the libraries' documentation and stubs; a test compares them
with the real binding of TensorRT for RTX. "Memory of the GPU" is memory of this process, which only this module may
touch; an "engine" computes with onnx's reference evaluator. It mirrors what its author read: that the code which it
drives runs on a GPU is not shown by it.
"""

import importlib
from types import ModuleType

FUNCTIONS = ("init_libnvinfer_plugins", "nptype")
"""What the API has besides classes."""


def fill(module: ModuleType, release: str) -> None:
    """Give a module the API of a release: 10, 11 or rtx."""
    enums = importlib.import_module("stand_in.enums")
    enums.choose(release)
    vars(module).update({name: vars(enums)[name] for name in enums.NAMES if name in vars(enums)})
    for name in ("timings", "network", "engine"):
        part = importlib.import_module(f"stand_in.{name}")
        own = {key: value for key, value in vars(part).items() if getattr(value, "__module__", "") == part.__name__}
        vars(module).update({key: value for key, value in own.items() if isinstance(value, type) or key in FUNCTIONS})
    module.__version__ = enums.VERSIONS[release]
