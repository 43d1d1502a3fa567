"""Settings of the `strategy` group: what is searched for, and how."""

from __future__ import annotations

from enum import Enum

from runner.schema.settings import limited, settings


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


class Find(str, Enum):
    """How many answers are wanted."""

    one = "one"
    # after each answer its nodes are fed with good values, until the rest of the model passes
    all = "all"


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
    # one answer, or all disjoint ones
    find: Find = Find.one
    # questions to spend on pairs, larger sets and growing again once no single node can go; null: up to 8, or 24
    # where answers were not monotone
    extra_checks: int | None = limited(None, least=0)
    # look inside If, Loop, Scan and functions that are part of the answer
    inside: bool = True
    # leave out outputs and inputs of the answer that the failure does not need
    trim: bool = True
    # repeat only: good | bad | a number of iterations
    until: str = "bad"
