"""Run a search against a Boolean condition and write down every question: the whole of a search is its transcript."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from strategies.search import Answer, Closure, Done, Search, Space, Step, Trial

Condition = Callable[[frozenset[int]], "bool | None"]


def chain(length: int, closure: Closure = Closure.FREE) -> Space:
    """0 -> 1 -> 2 ..."""
    return Space(tuple(range(length)), tuple((i - 1,) if i else () for i in range(length)), closure)


def plain(length: int) -> Space:
    """Elements without structure."""
    return Space(tuple(range(length)))


def needs(*culprits: int) -> Condition:
    return lambda kept: set(culprits) <= kept


def answer(condition: Condition, trial: Trial) -> Answer:
    found = condition(trial.elements)
    return Answer.UNKNOWN if found is None else Answer.YES if found else Answer.NO


def transcript(space: Space, first: Step, condition: Condition) -> tuple[list[str], Done]:
    """Each line: the elements kept, and the answer."""
    search = Search(space, first, {space.whole: Answer.YES})
    lines: list[str] = []
    while not search.done:
        (question,) = search.ask(1)
        told = answer(condition, question.trial)
        lines.append(f"{question.trial.ranges} {told.value}")
        search.tell(question.trial, told)
    assert len(lines) == len(set(lines)), "the same question twice"
    return lines, search.done


def drive(space: Space, first: Step, condition: Condition, workers: int, seed: int = 0) -> tuple[Done, int]:
    """As a pool of ``workers`` would: answers arrive in a random order. Returns the end and the number of checks."""
    search, random, running, checks = Search(space, first, {space.whole: Answer.YES}), Random(seed), {}, 0
    while not search.done:
        for question in search.ask(workers):
            if len(running) < workers and question.trial not in running:
                running[question.trial] = question
        trial = random.choice(list(running))
        del running[trial]
        checks += 1
        search.tell(trial, answer(condition, trial))
    return search.done, checks
