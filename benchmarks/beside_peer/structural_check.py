"""The check that all tools get: a model that holds nodes that make all of these tensors fails, with exit code 1.

    python structural_check.py MODEL TENSOR [TENSOR ...]

Weights in other files are not read. Each check leaves a line with its CPU seconds in the file that CHECK_LOG names, and
sleeps for CHECK_SECONDS before it ends, as a build of an engine would take its time.
"""

import os
import sys
import time

import onnx

model = onnx.load(sys.argv[1], load_external_data=False)
made = {name for node in model.graph.node for name in node.output}
time.sleep(float(os.environ.get("CHECK_SECONDS", "0")))
with open(os.environ.get("CHECK_LOG", os.devnull), "a", encoding="ascii") as log:  # noqa: PTH123 - pathlib costs another import
    log.write(f"{time.process_time():.4f}\n")
sys.exit(1 if made.issuperset(sys.argv[2:]) else 0)
