"""The check that all tools get: a model that holds nodes that make all of these tensors fails, with exit code 1.

    python structural_check.py MODEL TENSOR [TENSOR ...]

As a function (`check`) it finds the tensors in CHECK_TENSORS. Weights in other files are not read. Each check leaves a
line with its CPU seconds in the file that CHECK_LOG names, and sleeps for CHECK_SECONDS before it ends, as a build of
an engine would take its time.
"""

import os
import sys
import time

import onnx


def holds(path, tensors, started):
    """Return whether nodes of the model make all of these; ``started``: CPU seconds that are not this check's."""
    model = onnx.load(path, load_external_data=False)
    made = {name for node in model.graph.node for name in node.output}
    time.sleep(float(os.environ.get("CHECK_SECONDS", "0")))
    with open(os.environ.get("CHECK_LOG", os.devnull), "a", encoding="ascii") as log:  # noqa: PTH123 - pathlib costs another import
        log.write(f"{time.process_time() - started:.4f}\n")
    return made.issuperset(tensors)


def check(model, inputs, expected):
    """Judge a model, in a process that judges others as well."""
    return not holds(model, os.environ["CHECK_TENSORS"].split(), time.process_time())


if __name__ == "__main__":
    sys.exit(1 if holds(sys.argv[1], sys.argv[2:], 0.0) else 0)
