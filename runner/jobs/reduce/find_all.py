"""Finding all failures: the search goes on without the nodes of the answers before, until the rest passes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runner.jobs.reduce.subgraph import Subgraph
from runner.report.summary import Summary
from runner.run_folder import MIN_GOOD, REDUCED
from runner.session.handover import HandOver
from runner.session.result import Ending
from runner.session.session import Session
from runner.status import Status
from runner.text import listed


@dataclass(frozen=True)
class Rest:
    """``answers``: after the first. ``said``: how it went on from the last one. ``broken``: what broke it off."""

    answers: tuple[Summary, ...]
    said: str
    broken: Ending | None = None


@dataclass(frozen=True)
class Further:
    """Searches on after an answer; good values replace the nodes of those found before.

    ``ended``: turns what stops a question into an ending. ``conclude``: writes everything about an answer into its
    folder.
    """

    session: Session
    handed: HandOver
    subject: Subgraph
    ended: Callable[[Callable[[], Ending | None]], Ending | None]
    conclude: Callable[[Ending, Path], Summary]

    def find(self, first: Ending) -> Rest:
        """Find the answers after the first, until the rest passes."""
        excluded: frozenset[int] = frozenset()
        answers: list[Summary] = []
        ending = first
        while True:
            assert ending.main
            excluded |= ending.main.elements
            if self.session.inquiry.exhausted:
                return Rest(tuple(answers), "the budget was reached: what else fails was not looked for")
            unjudgeable = self.subject.unjudgeable(excluded)
            folder = self.handed.folder / "answers" / str(len(answers) + 2)
            hands = self.handed.beside(folder)
            without = excluded | unjudgeable
            found = self.ended(partial(self.session.beyond, without, hands))
            if found is None:
                return Rest(tuple(answers), "the rest passes" + self._unjudged(unjudgeable))
            if found.status is not Status.found:
                hands.withdraw(REDUCED)
                hands.withdraw(MIN_GOOD)
                shutil.rmtree(folder, ignore_errors=True)
                return Rest(tuple(answers), f"the search for more broke off: {self._why(found)}", found)
            ending = found
            folder.mkdir(parents=True, exist_ok=True)
            answers.append(self.conclude(ending, folder))

    def _why(self, ending: Ending) -> str:
        if ending.status is Status.interrupted:
            return f"interrupted; go on with resume={self.handed.folder}"
        return ending.message

    def _unjudged(self, unjudgeable: frozenset[int]) -> str:
        if not unjudgeable:
            return ""
        names = [self.subject.graph.nodes[index].name for index in sorted(unjudgeable)]
        return f", but for what only gets NaN or Inf and was not judged: {listed(names)}"
