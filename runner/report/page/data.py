"""What a page shows as plain values, and what only the process of a run can tell it.

What a page shows, as plain JSON values: made by whoever knows the run, drawn by whoever knows browsers.

All text is as the model, the check or the user wrote it, not escaped. A number that is not finite is a string: "nan",
"inf" or "-inf". Nodes and tensors are numbered within their graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from onnx import TypeProto

from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile
from runner.report.document import Section
from runner.verdict import Sample

Number = float | int | str
Row = list[str]


class PageBody(TypedDict):
    """A graph nested in a node: a branch, the body of a loop, a function that the node calls.

    ``owner``: the node; ``name``: in words ("then branch"); ``path``: of the names of its nodes ("gate.then_branch").
    ``node``, ``nodes``: its first node and how many it has; ``tensor``: the first of its own tensors, which end where
    those of the next body begin. ``feeds``, ``results``: its inputs and outputs.
    """

    owner: int
    name: str
    path: str
    node: int
    nodes: int
    tensor: int
    feeds: list[int]
    results: list[int]


class PageGraph(TypedDict):
    """A graph's structure in columns, small enough for 25,000 nodes. Weights have no values here.

    ``names``: of nodes in the model's order (a nameless one by its first output). ``operators``: each type once, with
    its domain unless that is ONNX's own; ``operator``: of each node, its place there. ``blocks``: paths from names'
    scopes ("bert/encoder/layer.0"), or stretches of the model where names have none ("nodes 0 to 499"); ``block``: of
    each node. ``tensors``: names; ``types``: of each tensor "float16[1, 128, 768]", "" where it is not known.
    ``inputs``, ``outputs``: of each node, tensors (-1: omitted). ``constants``: tensors that are weights. ``feeds``,
    ``results``: tensors that are the graph's inputs and outputs. ``attributes``: name and text, of nodes that have
    any, by the node's number as text (JSON has no other keys). ``culprits``: nodes of the answer, in this graph.
    ``bodies``: nested graphs, whose nodes and tensors follow those of the model's top level, each after the node that
    owns it. ``undrawn``: how many nested graphs are not here for lack of room.
    """

    names: list[str]
    operators: list[str]
    operator: list[int]
    blocks: list[str]
    block: list[int]
    tensors: list[str]
    types: list[str]
    inputs: list[list[int]]
    outputs: list[list[int]]
    constants: list[int]
    feeds: list[int]
    results: list[int]
    attributes: dict[str, list[Row]]
    culprits: list[int]
    bodies: list[PageBody]
    undrawn: int


class PageValues(TypedDict):
    """A sample of one tensor. ``edges``: one more than ``counts``, over what is finite; ``first``: in C order.

    ``low``, ``high`` and ``mean`` of what is finite: None where nothing is, and of texts.
    """

    dtype: str
    shape: list[int]
    low: Number | None
    high: Number | None
    mean: Number | None
    nan: int
    inf: int
    edges: list[float]
    counts: list[int]
    first: list[Number]


class PageDifference(TypedDict):
    """An element in which good and wrong values differ."""

    index: list[int]
    good: Number
    wrong: Number


class PageTensor(TypedDict):
    """Values of a tensor, by its name: the reference's, and what the target gives in the reduced model if it is known.

    ``where``: of which model ("the reduced model", "the whole model").
    """

    name: str
    where: str
    good: PageValues | None
    wrong: PageValues | None
    differences: list[PageDifference]
    differing: int | None


class PagePrecision(TypedDict):
    """What a precision search knows of a node. None: not measured.

    ``held``: the type that it has in the mixed model, ``error``: its error there. ``most``: the largest magnitude of
    what it makes, with everything in high precision; ``limit``: the largest number of the low type (None: it has none
    of its own). ``why``: why the error of the node alone is no number, "" where it is one.
    """

    held: str
    error: Number | None
    most: Number | None
    limit: Number | None
    why: str


class LayerError(TypedDict):
    """``error``: relative to the good values; ``own``: of the node alone, on good inputs. None: not measured.

    ``precision``: of a precision search, whose ``error`` is that with everything low.
    """

    tensor: str
    node: str
    error: Number | None
    own: Number | None
    nan: int
    inf: int
    precision: PagePrecision | None


class PageTrial(TypedDict):
    """A check that was asked. ``kept``: stretches [first, last] of element numbers, of ``elements`` in the page.

    ``number``: its iteration, 0: a verdict that was known. ``log``: what it printed, cut short.
    """

    number: int
    phase: str
    label: str
    size: int
    kept: list[list[int]]
    outcome: str
    seconds: float
    reason: str
    log: str


class Point(TypedDict):
    """A point of the curve of a precision search. ``raised``: how many nodes; ``error``: of the whole model then."""

    raised: int
    error: Number
    outcome: str
    chosen: bool


class Bought(TypedDict):
    """A layer that alone was low. ``cost``: bytes that it takes to keep it high."""

    node: str
    error: Number
    outcome: str
    cost: int
    raised: bool


class PageJob(TypedDict):
    """A job of a sweep, a step of a triage, or one of several answers. None: not known, or nothing was run.

    ``page``: relative link to its own page, "" without one.
    """

    number: str
    overrides: Row
    status: str
    exit_code: int
    answer: str
    trust: str
    asked: int | None
    run: int | None
    reused: int | None
    seconds: float | None
    page: str


@dataclass(frozen=True)
class Page:
    """One page. Whatever does not apply is None or empty, and is not shown.

    ``kind``: "run" or "sweep". ``verdict``: one sentence; ``cause``: another, "" where it was not asked. ``labels``:
    short words beside the title that limit what is claimed ("simulated builder", "interrupted"). ``facts``: name and
    value. ``commands``: what each does, and the command. ``elements``: what trials are made of ("nodes", "candidate
    nodes", "tactics", ...); of "nodes" number i is node i of ``whole``. ``reduced``, ``whole``: the answer's graph, and
    the original. ``sections``: of the report, which no script reads.
    """

    kind: str
    title: str
    made: str
    version: str
    verdict: str = ""
    cause: str = ""
    status: str = ""
    strategy: str = ""
    elements: str = ""
    reduced: PageGraph | None = None
    whole: PageGraph | None = None
    labels: list[str] = field(default_factory=list)
    facts: list[Row] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    tensors: list[PageTensor] = field(default_factory=list)
    layers: list[LayerError] = field(default_factory=list)
    trials: list[PageTrial] = field(default_factory=list)
    curve: list[Point] = field(default_factory=list)
    alone: list[Bought] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    commands: list[Row] = field(default_factory=list)
    jobs: list[PageJob] = field(default_factory=list)


# What only the process of a run can tell its page: the model in memory, its recorded values, the target at hand.

Run = Callable[[str, Path, Sample, Path], Mapping[str, TensorFile]]
"""Given ``target`` or ``reference``, a model, a sample and an empty folder: the outputs, none where it does not run."""


@dataclass(frozen=True)
class PageData:
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
