"""The key of a verdict: its context, and the journals in which it is looked up.

The context of a run: everything that a verdict depends on besides the trial, in named parts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.checkers.candidate_runs import digests_of
from runner.checkers.checker import Checker
from runner.checkers.command_template import Template
from runner.engine.subject import Subject, values_digest
from runner.exit_codes import Status
from runner.files import json_of
from runner.journal.journal import JOURNAL_NAME, Journal, Records, context_digest, read_context
from runner.journal.replay_yaml import TYPED, drift
from runner.reference.load import Loaded
from runner.schema.backend import BackendSettings
from runner.schema.root import Settings
from runner.schema.settings import PathUse, context_of, path_values
from runner.text import listed
from runner.workers.pool import Pool
from strategies.search import Outcome, Trial


def context(
    settings: Settings, checker: Checker, pool: Pool, loaded: Loaded | None, subject: Subject
) -> dict[str, str]:
    """Return the named parts; journals of equal contexts may share verdicts."""
    parts = {
        "strategy": settings.strategy.subject,
        **{f"subject.{key}": value for key, value in subject.identity().items()},
        "cut": json.dumps({**context_of(settings.cut), "record": "ahead" if settings.cut.records else "off"}),
        **{f"check.{key}": value for key, value in checker.identity().items()},
    }
    if loaded:
        parts["model"] = loaded.sha256
        names = loaded.graph.inputs
        parts["inputs"] = values_digest(
            {name: sample[name] for name in names if name in sample} for sample in loaded.recorded.values
        )
        if loaded.expected:
            parts["expected"] = values_digest(loaded.expected)
        if loaded.inherited:
            parts["reference.model"] = loaded.inherited.digest
    if loaded or not settings.checker.runs_own_code:
        parts["reference"] = _backend(settings.reference, pool)
    if not settings.checker.runs_own_code:
        parts["target"] = _backend(settings.target, pool)
    return parts


def versions(settings: Settings, pool: Pool) -> dict[str, str]:
    """Return the versions of what takes part, the target's under their own names."""
    found = dict(pool.versions(settings.target.python))
    if settings.reference.python != settings.target.python:
        found |= {f"reference.{key}": value for key, value in pool.versions(settings.reference.python).items()}
    return found


def drifted(settings: Settings, now: Mapping[str, str]) -> tuple[str, ...]:
    """Name what has changed since the run that a replay file came from, but for what follows from what was typed."""
    before = settings.recorded.get("context", {})
    if not isinstance(before, Mapping):
        return ()
    other = ["strategy"] if before.get("strategy") != now.get("strategy") else []
    return drift(before, dict(now), (*settings.recorded.get(TYPED, ()), *other))


def _backend(backend: BackendSettings, pool: Pool) -> str:
    # a library that is no path is a package that tells its place
    libraries = [path for _, use, path in path_values(backend) if PathUse.LIBRARY in use]
    packages = [library for library in libraries if not Path(library).is_absolute()]
    versions = pool.versions(backend.python, packages)
    return json.dumps({**context_of(backend), "files": digests_of(backend, Path), "versions": versions}, sort_keys=True)


# Where the journals of a run lie: its own, those of its stages, and those that the jobs of a sweep share.

_LOG = logging.getLogger(__name__)
#: a part of a context: the digest of a file that a command names
_NAMED = "check.file "


@dataclass(frozen=True)
class Journals:
    """Opens the journals of one job. ``at``: a path of the configuration, from where the user stands."""

    settings: Settings
    folder: Path
    at: Callable[[str], Path]

    def main(self, context: Mapping[str, str]) -> Journal:
        """Open the journal of the run. Raises UsageError where it, or one to reuse, is of another context.

        A file that the command names and that was not there when the journal was begun is what the command writes; but
        not a program, nor while nothing was answered: then it may be what was missing.
        """
        path = self.folder / JOURNAL_NAME
        self._begin_anew(path, context)
        if path.is_file() and path.stat().st_size:
            written = self._written_since(path, context)
            context = {key: value for key, value in context.items() if key not in written}
        return self._open(context, JOURNAL_NAME, needed=True)

    def _begin_anew(self, path: Path, context: Mapping[str, str]) -> None:
        """Put the journal of a run aside that could not judge, where what it could not judge with has changed since.

        Its verdicts were found by a check that was mended, say, so they hold for nothing that is asked now. The file
        stays beside the new one.
        """
        if _ended(self.folder) != Status.could_not_judge or not path.is_file() or not path.stat().st_size:
            return
        begun = read_context(path)
        changed = {
            name.removeprefix("check.").split()[0]
            for name in {*begun, *context}
            if begun.get(name) != context.get(name)
        }
        if not changed:
            return
        aside = path.with_name(f"journal-{context_digest(begun)}.jsonl")
        path.replace(aside)
        _LOG.info(
            "the run starts over, because %s changed; the earlier verdicts are in %s", listed(sorted(changed)), aside
        )

    def stage(self, outer: Journal, name: str, subject: Subject) -> Journal:
        """Open the journal of a stage that puts questions about ``subject``, in a run or stage that writes ``outer``.

        What its trials mean is what the subject says: two stages share a journal only where they ask the same.
        """
        of = {f"stage.{key}": value for key, value in subject.identity().items()}
        kept = {key: value for key, value in outer.context.items() if not key.startswith("stage.")}
        context = {**kept, "stage": name, **of}
        return self._open(context, f"journal-{context_digest(context)}.jsonl", needed=False)

    def further(self, main: Journal, excluded: Trial) -> Journal:
        """Open the journal of the search for another failure, without the elements of the answers before."""
        context = {**main.context, "further": excluded.ranges}
        return self._open(context, f"journal-{context_digest(context)}.jsonl", needed=False)

    def _written_since(self, path: Path, context: Mapping[str, str]) -> frozenset[str]:
        """Return the parts of a context that stand for files which the command has written since."""
        begun = read_context(path)
        words = [key.removeprefix(_NAMED) for key in context if key.startswith(_NAMED) and key not in begun]
        data = Template.data({word: self.at(word) for word in words})
        if not data:
            return frozenset()
        records = Records(path, begun)
        records.read()
        if all(entry.verdict.outcome is Outcome.UNRESOLVED for entry in records.standing.values()):
            return frozenset()
        for word in sorted(data):
            _LOG.warning(
                "%s was not there when this run began: it is taken for what the check writes. If the check reads it, "
                "start a new run",
                word,
            )
        return frozenset(f"{_NAMED}{word}" for word in data)

    def _open(self, context: Mapping[str, str], name: str, *, needed: bool) -> Journal:
        shared = self._shared(context)
        journal = Journal(shared or self.folder / name, context, writer=str(self.folder), shared=shared is not None)
        if self.settings.journal.reuse:
            journal.reuse([self.at(path) for path in self.settings.journal.reuse], needed=needed)
        return journal

    def _shared(self, context: Mapping[str, str]) -> Path | None:
        """The journal that all jobs of a sweep with this context share; None where nothing is to be shared."""
        sweep = self.folder.parent
        if self.settings.strategy.repeats or not self.settings.journal.share or not (sweep / "multirun.yaml").exists():
            return None
        return sweep / "journal" / f"{context_digest(context)}.jsonl"


def _ended(folder: Path) -> object:
    """Return the status of the run that ended in a folder; None: none did."""
    result = json_of(folder / "result.json")
    return result.get("status") if isinstance(result, dict) else None
