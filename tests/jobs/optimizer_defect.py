"""A model of which ONNX Runtime's optimizers make an invalid graph, as long as they have that defect."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from tests.jobs.models import saved


def defective(path: Path, behind: str | None = None) -> Path:
    """Write a cast, a division and a multiplication; ``behind``: the operator of a node that reads what they make."""
    last = f"[{behind.lower()}] y = {behind}(scaled)" if behind else ""
    text = f"""g (float[1,4] x, float[1,1] most) => (float[1,4] y) <float one = {{1.0}}> {{
        [cast] wide = Cast<to = 1>(x) [div] scale = Div(one, most)
        [mul] {"scaled" if behind else "y"} = Mul(wide, scale) {last} }}"""
    return saved(path, text)


def loads(model: Path) -> bool:
    """Return whether ONNX Runtime loads a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(str(model), options)
    except Exception:  # noqa: BLE001 - of native code
        return False
    return True
