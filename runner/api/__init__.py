"""Winnow for programs, notebooks and tests: ``import winnow_onnx as winnow`` (docs/python.md)."""

import logging

import runner.cli.supported_system  # noqa: F401 - before what cannot be loaded elsewhere
from runner.api.result import NoAnswerError, Result
from runner.api.run import (
    Options,
    extract,
    inspect,
    layerwise,
    passes,
    precision,
    reduce,
    repeat,
    triage,
    versions,
    workaround,
)
from runner.exit_codes import UsageError, WinnowError
from runner.report.progress import CheckEvent
from runner.schema.inputs import RandomInputs

__all__ = [
    "CheckEvent",
    "NoAnswerError",
    "Options",
    "RandomInputs",
    "Result",
    "UsageError",
    "WinnowError",
    "extract",
    "inspect",
    "layerwise",
    "passes",
    "precision",
    "reduce",
    "repeat",
    "triage",
    "versions",
    "workaround",
]

# what a run logs is for the program's own handlers; what matters of it is in `Result.warnings`
logging.getLogger("runner").addHandler(logging.NullHandler())
