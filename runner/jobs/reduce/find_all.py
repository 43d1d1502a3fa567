"""Finding all failures: the search goes on without the nodes of the answers before, until the rest passes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runner.jobs.reduce.carried_constants import as_elements, named
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import Status
from runner.report.summary import Summary
from runner.run_folder import MIN_GOOD, REDUCED
from runner.session.handover import HandOver
from runner.session.result import Ending
from runner.session.session import Session
from runner.text import listed


@dataclass(frozen=True)
class Rest:
    """``answers``: after the first. ``said``: how it went on from the last one. ``broken``: what broke it off."""

    answers: tuple[Summary, ...]
    said: str
    broken: Ending | None = None


def further(
    session: Session,
    handed: HandOver,
    subject: Subgraph,
    ended: Callable[[Callable[[], Ending | None]], Ending | None],
    conclude: Callable[[Ending, Path], Summary],
    first: Ending,
    onward: str = "",
) -> Rest:
    """Find the answers after the first, until the rest passes; good values replace the nodes of those found before.

    ``ended``: turns what stops a question into an ending. ``conclude``: writes everything about an answer into its
    folder. ``onward``: how a run goes on that was stopped.
    """
    excluded: frozenset[int] = frozenset()
    answers: list[Summary] = []
    ending = first
    while True:
        assert ending.main
        assert ending.standing
        own, searched = named(ending.standing, subject), session.judge.subject
        excluded |= ending.main.elements | own
        if isinstance(searched, Subgraph) and own & searched.carried:  # good values stand for it from now on
            session.adopt(as_elements(session.judge, searched, own))
        if session.inquiry.exhausted:
            return Rest(tuple(answers), "the budget was reached: what else fails was not looked for")
        unjudgeable = subject.unjudgeable(excluded)
        folder = handed.folder / "answers" / str(len(answers) + 2)
        hands = handed.beside(folder)
        found = ended(partial(session.beyond, excluded | unjudgeable, hands))
        if found is None:
            names = [subject.graph.nodes[index].name for index in sorted(unjudgeable)]
            but = f", but for what only gets NaN or Inf and was not judged: {listed(names)}" if names else ""
            return Rest(tuple(answers), f"the rest passes{but}")
        if found.status is not Status.found:
            hands.withdraw(REDUCED)
            hands.withdraw(MIN_GOOD)
            shutil.rmtree(folder, ignore_errors=True)
            stopped = found.status is Status.interrupted
            why = f"interrupted{onward}" if stopped else found.message
            return Rest(tuple(answers), f"the search for more broke off: {why}", found)
        ending = found
        folder.mkdir(parents=True, exist_ok=True)
        answers.append(conclude(ending, folder))
