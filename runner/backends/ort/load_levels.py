"""Whether a plain ONNX Runtime loads a model: at each level of its graph optimizations, on its CPU provider."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

from typing import Any, Dict

from runner.backends.ort.onnxruntime import LEVELS, register

# reports call the lowest level `disable`, after ORT_DISABLE_ALL
_LEVELS = {"disable" if name == "none" else name: member for name, member in LEVELS.items()}


def loads(args: Dict[str, Any]) -> Dict[str, Any]:
    """Load the model at ``args["model"]``; return ``levels``: {level: why it was refused, empty where it loads}.

    ``args["levels"]``: those that are wanted (all without it); ``args["disabled"]``: optimizers that are disabled;
    ``args["custom_ops"]``: libraries of the user's own operators.
    """
    import onnxruntime

    wanted = args.get("levels") or list(_LEVELS)
    disabled = list(args.get("disabled") or ()) or None
    found: Dict[str, str] = {}
    for name in wanted:
        level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[name], None)
        if level is None:
            continue
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            for library in args.get("custom_ops") or ():
                register(options, str(library))
            onnxruntime.InferenceSession(
                args["model"], options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
            )
        except Exception as error:  # noqa: BLE001 - whatever native code raises
            found[name] = str(error).strip() or type(error).__name__
        else:
            found[name] = ""
    return {"levels": found}
