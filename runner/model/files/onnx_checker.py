"""The ONNX checker over a model file, in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx


def check_model(args: Mapping[str, Any]) -> dict[str, Any]:
    """Check the model at ``args["model"]``; return ``ok`` and ``message``.

    Weights beside it are looked for; shapes and types are inferred where ``full`` is true.
    """
    try:
        onnx.checker.check_model(str(args["model"]), full_check=bool(args.get("full")))
    except Exception as error:  # noqa: BLE001 - an invalid model is the answer, whatever class it comes in
        return {"ok": False, "message": f"{type(error).__name__}: {error}".strip()}
    return {"ok": True, "message": ""}
