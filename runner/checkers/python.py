"""A function of the user's judges, in a worker."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.checkers.checker import Checker, Tools
from runner.checkers.command_template import Watched, imported, search_path, syntax_of
from runner.checkers.exit_and_output import BY_LINE, uncaught
from runner.checkers.failure_text import VALUE, Measure, Threshold, last_line, normalize
from runner.exit_codes import NotTried, UsageError
from runner.files import read_plain
from runner.judgment import MEASURE
from runner.model.values.recorded import paths
from runner.schema.checker import PythonChecker
from runner.schema.root import Settings
from runner.schema.settings import context_of
from runner.text import one_line
from runner.verdict import NO_IMPORT, OURS, SAYS_SO, Candidate, Sample, Signature, Verdict, crash
from runner.workers.reply import OUT_OF_MEMORY, Reply, refused_memory, shortage
from strategies.search import Outcome

#: what `runner.api` names its files
_OF_A_PROGRAM = re.compile(r"(^|/)given/check-[0-9a-f]{16}\.py$")
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_RESULTS = (
    f"True or False, or a text ({' | '.join(_OUTCOMES)}); or a dict with one of these as 'outcome', and numbers. With "
    "checker.max_drop or checker.max_rise: a number, or a dict with 'value'"
)


class PythonCheck(Checker):
    """``checker=python``: ``function(model, inputs, expected)`` returns a bool, the name of an outcome, or a dict.

    True is PASS, False is FAIL. A number is held against ``max_drop`` or ``max_rise``. A dict holds ``outcome`` (a bool
    or a name) or ``value`` (a number), ``detail`` (the signature's) and other numbers (the verdict's metrics). A
    function that never returns anything judges by what it raises: PASS if it raises nothing. What a function raises
    (also by ``assert``) is a FAIL with the class and the line of it, as of a command: on the whole model that is the
    failure under study, and elsewhere another exception is the check's own mistake (`relative`). A module that cannot
    be imported is UNRESOLVED. A function that dies or runs out of time or memory: FAIL, with that signature. Raises
    UsageError for a file that does not exist.
    """

    name = "python"
    wants_feeds = True

    def __init__(self, settings: PythonChecker, tools: Tools, run: Settings | None = None) -> None:
        if not settings.file:
            raise UsageError(
                "checker.file is missing: checker=python needs a Python file, for example checker.file=check.py, with "
                "a function check(model, inputs, expected)"
            )
        self._file = tools.at(settings.file)
        if not self._file.is_file():
            raise UsageError(f"checker.file={settings.file}: no such file (seen from {tools.cwd})")
        self._settings = settings
        self._tools = tools
        places = (self._file.parent, *search_path(os.environ, tools.cwd))
        modules = imported(self._file, places)
        self.threshold = Threshold(settings)
        self._good: Path | None = None
        if run and self.threshold.lacks_baseline and not run.strategy.lowers_precision:
            if run.reference.model is None:
                raise UsageError(
                    f"checker.max_drop={settings.max_drop} checker.max_rise={settings.max_rise} "
                    f"strategy={run.strategy.name}: which number is good? Give it, checker.baseline=0.76, or the good "
                    "model, reference.model=original.onnx (strategy=precision measures it on the model in high "
                    "precision)"
                )
            self._good = tools.at(run.reference.model)
        files = {settings.file: self._file, **({"reference.model": self._good} if self._good else {})}
        self._watched = Watched(files, tools.run_folder, modules=modules)
        # what could be loaded once and no longer can, in a new worker, is a module that went missing
        self._loaded = False
        self._measure = Measure(settings.measure, settings.measure_better)
        self.higher_is_better = self._measure.higher_is_better
        if self.higher_is_better and (settings.max_drop is not None or settings.max_rise is not None):
            raise UsageError(
                "checker.measure_better=higher: how far max_drop and max_rise are exceeded is better lower"
            )

    @property
    def takes_inputs(self) -> bool:
        """Whether the function's own text may read its second argument."""
        return self._reads(1) is not False

    @property
    def reads_expected(self) -> bool:
        """Whether the function's own text reads its third argument."""
        return bool(self._reads(2))

    def _reads(self, at: int) -> bool | None:
        """Whether the function's own text reads an argument; None: it is made otherwise, so that nothing is known."""
        named = (one for one in ast.walk(syntax_of(read_plain(self._file))) if isinstance(one, ast.FunctionDef))
        made = next((one for one in named if one.name == self._settings.function), None)
        given = [*made.args.posonlyargs, *made.args.args][at : at + 1] if made else []
        inside = [one.id for one in ast.walk(made) if isinstance(one, ast.Name)] if made else []
        return any(arg.arg in inside for arg in given) if given else None

    def check(self, candidate: Candidate) -> Verdict:
        """Call the function once, with all samples.

        Raises CannotJudge where the file has changed since the run began.
        """
        self._watched.confirm()
        if self._good and self.threshold.lacks_baseline:
            _, _, reason, numbers = self._read(self._called(candidate, self._good))
            self.threshold.settle(numbers)
            if self.threshold.lacks_baseline:
                return Verdict(Outcome.UNRESOLVED, None, f"no number of reference.model is known: {reason}")
        reply = self._called(candidate, candidate.model)
        outcome, signature, reason, numbers = self._read(reply)
        self._watched.confirm(outcome)
        printed = read_plain(reply.log).decode("utf-8", "replace") if reply.log else ""
        measure = self._measure.number(numbers.get(MEASURE, self._measure.of(printed)))
        numbers = {**numbers, **({} if measure is None else {MEASURE: measure})}
        self._loaded = True
        log = self._write_log(candidate, reply, printed)
        return Verdict(outcome, signature, reason, numbers, reply.seconds, log, None, reply.peak_rss_mb)

    def _called(self, candidate: Candidate, model: Path | None) -> Reply:
        """Call the function with a model, and with the values of a candidate."""
        samples = candidate.samples or (Sample({}),)
        every = [held for sample in samples for held in (sample.feeds, sample.expected)]
        settings = self._settings
        arguments = {
            "file": str(self._file),
            "function": settings.function,
            "model": str(model) if model else None,
            "samples": [paths(held) for held in every[::2]],
            "expected": [paths(held) for held in every[1::2]],
            "structures": {name: one.structure for held in every for name, one in held.items() if one.structure},
        }
        return self._tools.pool.call(
            "user_check",
            arguments,
            python=settings.python,
            timeout=settings.timeout,
            memory_mb=settings.memory_mb,
            fresh=candidate.draws,
            keep_log=True,
            lease=self._tools.pool.user_kind,
        )

    def settle(self, verdict: Verdict) -> None:
        """Learn the baseline."""
        if verdict.outcome is Outcome.PASS:
            self.threshold.settle(verdict.metrics)

    def identity(self) -> dict[str, str]:
        """The file's digest, the function, the limits."""
        return {
            "checker": self.name,
            "exceptions": BY_LINE,
            "function": json.dumps(context_of(self._settings), sort_keys=True),
            **{f"file {file}": digest for file, digest in self._watched.digests.items()},
        }

    def describe(self) -> str:
        """File and function; of a program's function, whose file Winnow has written, its name alone."""
        named, function = self._settings.file or "", self._settings.function
        return function if _OF_A_PROGRAM.search(named) else f"{named}:{function}"

    def _read(self, reply: Reply) -> tuple[Outcome, Signature | None, str, Mapping[str, Any]]:
        if reply.failure is not None:
            failure = reply.failure
            if reply.unready and self._loaded:
                raise NotTried(f"{self.describe()}: {failure.message}")
            if failure.stage == "setup" and not self._loaded:
                raise UsageError(f"checker=python: {failure.message}")
            return Outcome.UNRESOLVED, None, f"{self.describe()} raised {failure.type}: {failure.message}", {}
        if reply.death == OUT_OF_MEMORY:
            raise NotTried(f"{self.describe()}: {shortage()}")
        if reply.death is not None or reply.value is None:
            kind = reply.death or "exit"
            return Outcome.FAIL, Signature("check", kind), f"{self.describe()} ended with {crash(kind) or kind}", {}
        if "raised" in reply.value:
            if self._settings.memory_mb is None and refused_memory(reply.value["raised"]):
                raise NotTried(f"{self.describe()}: {shortage()}")
            return (*self._raised(reply.value["raised"]), {})
        return self._outcome(reply.value.get("result"))

    def _raised(self, trace: str) -> tuple[Outcome, Signature | None, str]:
        died = uncaught(trace)
        if died is None:  # an exception that cannot be shown
            return Outcome.UNRESOLVED, None, f"{self.describe()} raised {last_line(trace)}"
        if died.imports:
            return Outcome.UNRESOLVED, None, f"{NO_IMPORT}: {died.said}"
        return Outcome.FAIL, Signature("check", "raised", normalize(died.said), died.raised), one_line(died.said, 300)

    def _outcome(self, result: object) -> tuple[Outcome, Signature | None, str, Mapping[str, Any]]:
        if result is None:
            return (
                Outcome.PASS,
                None,
                "it returned None and raised nothing; for a bad model it has to return False, or raise",
                {},
            )
        detail, numbers, said = "", {}, result
        if isinstance(result, int | float) and not isinstance(result, bool):
            said, numbers = None, {VALUE: result}
        elif isinstance(result, dict):
            said = result.get("outcome")
            detail = str(result.get("detail") or "")
            numbers = {str(key): value for key, value in result.items() if key not in {"outcome", "detail", *OURS}}
        judged = self.threshold.judge(numbers) if said is None else None
        if judged:
            outcome, why, exceeded = judged
            numbers = {MEASURE: exceeded, **numbers} if exceeded is not None else numbers
            detail = f"{why} {detail}".strip()
        elif isinstance(said, bool):
            outcome = Outcome.PASS if said else Outcome.FAIL
        elif isinstance(said, str) and said.lower() in _OUTCOMES:
            outcome = _OUTCOMES[said.lower()]
        else:
            reason = f"{self.describe()} returned {result!r:.200}; it has to return {_RESULTS}"
            return Outcome.UNRESOLVED, None, reason, numbers
        if outcome is Outcome.UNRESOLVED and not detail:
            return outcome, None, f"{self.describe()} said unresolved", numbers
        failed = outcome in (Outcome.FAIL, Outcome.DIFFERENT)
        signature = Signature("check", SAYS_SO, normalize(detail)) if failed else None
        return outcome, signature, detail or (f"{self.describe()} returned {said!r}" if failed else ""), numbers

    def _write_log(self, candidate: Candidate, reply: Reply, printed: str) -> str | None:
        text = printed + (f"{reply.failure.type}: {reply.failure.message}\n" if reply.failure else "")
        if not text:
            return None
        candidate.folder.mkdir(parents=True, exist_ok=True)
        path = candidate.folder / "check.log"
        path.write_text(text, encoding="utf-8")
        if reply.log:
            reply.log.unlink(missing_ok=True)
        return self._tools.relative(path)
