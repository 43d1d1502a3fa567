"""An audit of the candidates of a run: are they sound, and do they compute on a runtime what was recorded?

The check is given the recorded values (``AUDITED``), and all candidates are kept with them (``KEEP_ALL``).
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from tests.harness import Run

AUDITED = ("{inputs}", "{references}")
KEEP_ALL = "artifacts=all"
TOLERANCE = 1e-3
"""Of the largest value of a tensor: a runtime may add in another order where other nodes surround it."""


def audited(run: Run) -> None:
    """Each candidate was sound, and gives without optimizations what was recorded."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    count = 0
    for path in sorted((run.folder / "artifacts").rglob("*.onnx")):
        if [one.name for one in onnx.load(path).graph.input] == ["input_of_a_harmless_model"]:
            continue  # a lone Identity, which is no part of the model
        onnx.checker.check_model(str(path))
        inputs, references = (path.with_suffix(f".{name}.npz") for name in ("inputs", "references"))
        with np.load(inputs) as feeds, np.load(references) as expected:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            outputs = session.run(list(expected), dict(feeds))
            for (name, right), found in zip(expected.items(), outputs, strict=True):
                allowed = TOLERANCE * np.max(np.abs(right), initial=0) + 1e-6
                np.testing.assert_allclose(found, right, rtol=0, atol=allowed, err_msg=f"{path.name}: {name}")
                count += 1
    assert count > 1
