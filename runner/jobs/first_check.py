"""The first check of a reduction begins before the model is read, where nothing that it needs is known later.

A reduction first checks the user's file as it is. A command that asks for no values needs only a copy of that file, so
it runs while this process imports what cuts models and a worker reads the model. What it says is taken, and recorded,
when it is asked for; a run that is refused before that ends it and leaves nothing of it.
"""

from __future__ import annotations

from contextlib import suppress

from runner import machine, run_folder
from runner.artifacts.disk_space import Room
from runner.candidate import Candidate
from runner.checkers.checker import Tools
from runner.checkers.command.begun_check import BegunCheck
from runner.checkers.command.command import CommandCheck
from runner.checkers.file_integrity import Seal
from runner.checkers.registry import build
from runner.errors import WinnowError
from runner.files import stamp
from runner.model.files.copy_for_check import copy_for_check
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings
from runner.schema.run import SanitizeSettings
from runner.schema.strategy import ReduceSettings
from runner.workers.leases.required_lease import lease_of
from strategies.trial import Trial

SMALL = 32 << 20
"""Bytes of a model up to which its check and the reference may run at once: any machine has memory for both."""
ROOM = 16
"""How many times the bytes of a larger model have to be free for that: two runtimes hold its weights several times."""
_THERE = frozenset({run_folder.NAME, ".hydra", "winnow.log", "workers"})


def begun_check(settings: Settings, tools: Tools, *, small: bool) -> BegunCheck | None:
    """Begin the first check of a run; None where it cannot be known yet, or where something is wrong.

    Whoever makes the checker, or checks, says what is wrong. ``small``: only of a model of at most so many bytes, or
    only of a larger one: to look into that takes the onnx package, and to copy it takes time.
    """
    if not (settings.model and _alone(settings, tools)):
        return None
    model, folder = tools.at(settings.model), tools.run_folder / "checks" / "00001"
    with suppress(WinnowError, OSError):
        size = model.stat().st_size if model.is_file() else 0
        if not size or (size <= SMALL) is not small or not (small or _room_for(size)):
            return None
        checker = build(settings, tools)
        if not isinstance(checker, CommandCheck) or checker.wants_feeds or checker.slip:
            return None
        # after this copy the run makes one of the weights; of a small model what is always free is enough for both
        Room(tools.run_folder).confirm(0 if small else 2 * size)
        before = stamp(model)
        copy = copy_for_check(model, folder)
        if copy == model:  # what it refers to is part of it
            return None
        candidate = Candidate(copy, folder, Trial.of([]), fresh=True, iteration=1)
        return BegunCheck.of(checker, candidate, Seal.of_file(copy), tools.guardian, before)
    return None


def _alone(settings: Settings, tools: Tools) -> bool:
    """Whether the check depends on nothing but its settings, whether no verdict is known, and nothing is in its way.

    A measure may be one of time: then nothing else should run.
    """
    checker, reference = settings.checker, settings.reference
    check = isinstance(checker, CommandChecker) and not (checker.place or checker.iteration_info or checker.measure)
    first = settings.strategy.implementation == ReduceSettings.implementation
    as_it_is = settings.sanitize == SanitizeSettings(fold_limit_mb=settings.sanitize.fold_limit_mb)
    shared = settings.journal.share and (tools.run_folder.parent / "multirun.yaml").exists()
    fresh = not settings.journal.reuse and not shared and _THERE.issuperset(run_folder.present(tools.run_folder))
    if not (check and first and as_it_is and fresh):
        return False
    return not (tools.pool.user_kind or lease_of(reference.to_json(), tools.pool, reference.python))


def _room_for(size: int) -> bool:
    """Whether a check of a model of so many bytes and the reference may run at once."""
    return size * ROOM <= machine.free_mb() * 2**20
