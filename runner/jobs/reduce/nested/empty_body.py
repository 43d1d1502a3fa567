"""Subject `emptied`: an owner with nothing left of one body; its one trial is the owner.

A failure that stays does not need the body: it is the owner's own, or another body's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from runner.jobs.reduce.nested.subject import Inside
from runner.model.graph.cut import Cut
from runner.model.nested.cut_body import cut_inside
from strategies.space import Space
from strategies.trial import Trial


@dataclass
class Emptied(Inside):
    """What the body handed out comes from outside, with the values that it had."""

    @staticmethod
    def of(inside: Inside) -> Emptied:
        """Return the same body, to be emptied."""
        return Emptied(**{field.name: getattr(inside, field.name) for field in fields(inside)})

    @cached_property
    def space(self) -> Space:
        """The owner, which stays."""
        return Space((0,), ((),), self.closure)

    def identity(self) -> dict[str, str]:
        """Return that of the body, of which nothing is left."""
        return {**super().identity(), "kind": "emptied"}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the owner's name."""
        return (self.level.graph.nodes[self.descent.body.owner].name,)

    def cut(self, trial: Trial) -> Cut:
        """Remove all nodes of the body. Raises CutError where a value that it hands out is not known."""
        return cut_inside(self.inner, (), self._knowledge, self.expose, emptied=True)
