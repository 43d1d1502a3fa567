"""What only the process of a run can tell its page: the model in memory, its recorded values, the target at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx import TypeProto

from runner.candidate import Sample
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile

Run = Callable[[str, Path, Sample, Path], Mapping[str, TensorFile]]
"""Given ``target`` or ``reference``, a model, a sample and an empty folder: the outputs, none where it does not run."""


@dataclass(frozen=True)
class RunMaterial:
    """Whatever a run does not have is empty.

    ``graph``: of the original, whose nodes are numbered as in the trials. ``recorded``: the reference's values for the
    first sample; ``types``: of tensors that were not recorded. ``elements``: what trials are made of, ``names``: of
    these by number, where they are not the graph's nodes; ``questions``: the journals whose trials are sets of these,
    ``bodies``: the nested graphs whose nodes the trials of others are sets of, by the journal.
    ``index``: of the run's checks; ``unlisted``: rows of verdicts that are not in it, in its form; ``logs``: from where
    these name what checks printed. ``run``: runs a model once more; None where that shows nothing, or is dear.
    """

    graph: Graph | None = None
    recorded: Mapping[str, TensorFile] = field(default_factory=dict)
    types: Mapping[str, TypeProto] = field(default_factory=dict)
    elements: str = ""
    names: Mapping[int, str] = field(default_factory=dict)
    questions: frozenset[str] = frozenset()
    bodies: Mapping[str, str] = field(default_factory=dict)
    index: Path | None = None
    unlisted: Sequence[Mapping[str, Any]] = ()
    logs: Path | None = None
    run: Run | None = None
