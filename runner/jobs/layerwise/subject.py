"""Subject `layers`: the elements are the tensors inside a model, and a trial is those that are looked at.

Either they are outputs of the whole model besides its own (marked), or the model is taken apart at all of them, and
these are made of good values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.candidate import Candidate, Invalid, Variant
from runner.jobs.reduce.first_look.inner_values_subject import beside, mark
from runner.jobs.reduce.subgraph import Subgraph
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Layers:
    """``tensors``: in topological order. ``settings``: what the target is run with besides its own.

    ``apart``: each is made of good values. The empty trial is the user's file as it is.
    """

    base: Subgraph
    tensors: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    apart: bool = False

    @cached_property
    def space(self) -> Space:
        """The tensors, without structure."""
        return Space(tuple(range(len(self.tensors))))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The element of each tensor."""
        return {name: number for number, name in enumerate(self.tensors)}

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256("\0".join(self.tensors).encode()).hexdigest()

    def identity(self) -> dict[str, str]:
        """Return the graph, how it is looked at, and the names of all tensors: a trial counts them."""
        kind = "layers apart" if self.apart else "layers marked"
        return {**self.base.identity(), "kind": kind, "tensors": self._digest}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the tensors by name."""
        return tuple(self.tensors[number] for number in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the whole model, made so that it hands out these tensors."""
        if not trial:
            return replace(self.base.original(folder), trial=trial, variant=Variant(dict(self.settings)))
        made = self.base.make(self.base.space.whole, folder)
        if isinstance(made, Invalid):
            return made
        names = self.names(trial)
        told = self.tensors if self.apart else names
        if not self.apart:
            mark(made, self.base, names)
        return replace(
            beside(made, self.base, told),
            trial=trial,
            ours=False,
            marked=names,
            inside=told if self.apart else (),
            variant=Variant({**self.settings, **({"wanted": list(names)} if self.apart else {})}),
        )
