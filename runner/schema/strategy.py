"""Settings of the `strategy` group: what is searched for, and how."""

from __future__ import annotations

from enum import Enum

from runner.schema.settings import settings


class SearchKind(str, Enum):
    """The decision procedures of `strategies/`."""

    reduce = "reduce"
    bisect = "bisect"
    linear = "linear"
    minimal = "minimal"
    repeat = "repeat"


class SubjectKind(str, Enum):
    """What a trial means in files."""

    subgraph = "subgraph"
    command = "command"


@settings
class StrategySettings:
    """One strategy: a search over a subject."""

    name: str = "reduce"
    search: SearchKind = SearchKind.reduce
    subject: SubjectKind = SubjectKind.subgraph
    # false: keep the model's inputs, remove only from the end (the kept set is closed under ancestors, its sinks are
    # outputs)
    reduce_inputs: bool = True
    # false: keep the model's outputs, remove only from the front (closed under descendants)
    reduce_outputs: bool = True
    # repeat only: good | bad | a number of iterations
    until: str = "bad"
