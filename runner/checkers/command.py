"""A command of the user's judges: what it is asked, and its runs."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runner.candidate import Candidate, Phase, Sample
from runner.checkers.checker import Checker, Tools
from runner.checkers.command_template import VALUES, Template, variable
from runner.checkers.exit_and_output import BY_LINE, NOT_IN_NPZ, SHELL_KILLED, ExitRules
from runner.checkers.failure_text import Measure
from runner.checkers.file_integrity import Watched
from runner.checkers.fixed_path import IterationInfo, placing
from runner.checkers.preload import Preloaded
from runner.errors import CannotJudge
from runner.files import read_plain
from runner.judgment import MEASURE, Scale, measured
from runner.model.values.recorded import write_npz, write_test_data_set
from runner.schema.checker import CommandChecker, Flaky, ShowOutput
from runner.schema.settings import context_of
from runner.text import digest_of_environment, hide_environment, plain
from runner.verdict import CHECK_OUTPUT, Verdict
from runner.workers.fork_server import Starters
from runner.workers.process_tree import Kills, Telling
from runner.workers.reply import KILLED, OUT_OF_MEMORY
from runner.workers.run_command import CommandEnd, run_command
from strategies.outcome import Outcome

if TYPE_CHECKING:
    from runner.model.values.recorded import TensorFile

# One run of a check's command: as a process of its own, or forked, and again where that alone may be why it ended.


class CommandRuns:
    """Runs the command of a check within its limits. Safe for threads.

    ``words``: the command's, with placeholders. ``telling``: makes what finds the lines of a long output that stay.
    """

    def __init__(
        self, settings: CommandChecker, words: Sequence[str], tools: Tools, telling: Callable[[], Telling]
    ) -> None:
        self._settings = settings
        self._tools = tools
        self._telling = telling
        self._never_forked = settings.flaky is Flaky.always
        self.preloaded = Preloaded(
            words,
            settings.preload,
            cwd=tools.cwd,
            env=self._environment(),
            guardian=tools.guardian,
            unasked=not self._never_forked and settings.measure is None,
        )
        self._starters = Starters(tools.guardian)
        tools.ending.callback(self.preloaded.close)
        tools.ending.callback(self._starters.close)

    def run(self, argv: Sequence[str], own: Mapping[str, str], log: Path, *, fresh: bool) -> CommandEnd:
        """Run ``argv``; where it is killed, twice: the kernel may have meant a neighbor.

        A check that is forked and does not end by itself runs again in a process of its own, and that counts: what was
        imported before the fork may be why. Where modules were preloaded that nobody has named, none is forked after
        one that was so killed, or that ended its server. ``own``: this check's environment beside what all have.
        ``fresh``: it is not forked. Raises CannotJudge where it ends a server that was asked for.
        """
        kills, seconds = Kills(self._tools.guardian), 0.0
        fresh = fresh or self._never_forked
        while True:
            server = starter = None
            try:
                with (
                    self.preloaded.server(argv, fresh=fresh) as server,
                    nullcontext() if server else self._starters.lent() as starter,
                    self._tools.pool.user_lease() as lease,
                ):
                    end = run_command(
                        argv,
                        cwd=self._tools.cwd,
                        env={**self._environment(), **own},
                        timeout=self._settings.timeout,
                        memory_mb=self._settings.memory_mb,
                        log=log,
                        guardian=self._tools.guardian,
                        lease=lease,
                        server=server or starter,
                        telling=self._telling(),
                    )
            except CannotJudge as error:
                if starter and not starter.alive:
                    self._starters.close()
                    continue
                if server and not server.alive and self.preloaded.given_up(str(error)):
                    fresh = True
                    continue
                raise
            seconds += end.seconds
            end = dataclasses.replace(end, seconds=seconds)
            if (end.death or end.cannot_start) and kills.foreign:
                unasked = self.preloaded.given_up(end.death or end.cannot_start or "")
                if server and (end.death or unasked):
                    fresh = True
                    continue
            if not (end.death == KILLED or end.returncode == SHELL_KILLED) or not kills.foreign:
                return end
            if not kills.again():
                return dataclasses.replace(end, death=OUT_OF_MEMORY) if kills.for_memory else end

    def _environment(self) -> dict[str, str]:
        """Return what all checks have in their environment."""
        # what a check prints and what it raises come in the order in which they happened
        return {"PYTHONUNBUFFERED": "1", **os.environ, **self._settings.env}


log = logging.getLogger(__name__)

# lines of a command's output that are repeated in the log; the file has all of them
_SHOWN_LINES = 100
_SHOWN_LETTERS = 2000
_FROM_GOOD = (Outcome.PASS, Outcome.DIFFERENT, Outcome.UNRESOLVED, Outcome.FAIL)


class CommandCheck(Checker):
    """``checker=command``: see `ExitRules` for the verdict and `Template` for the placeholders.

    A command that asks for {inputs} or {references} runs once for each sample, and the worst decides: without a measure
    the first that fails ends it. {data} is one folder with all samples.
    """

    name = "command"

    def __init__(self, settings: CommandChecker, tools: Tools, _run: object = None) -> None:
        self._settings = settings
        self._tools = tools
        self._template = Template(settings.command, tools.cwd, settings.env)
        self._rules = ExitRules(settings)
        self._runs = CommandRuns(settings, self._template.words, tools, self._rules.telling)
        self._measure = Measure(settings.measure, settings.measure_better)
        self.higher_is_better = self._measure.higher_is_better
        files = {word: path for word, path in self._template.files().items() if path not in self._ours()}
        modules = self._template.modules(files, {**os.environ, **settings.env})
        self._watched = Watched(files, tools.run_folder, self._template.data(files), modules)
        self._placed = placing(settings, tools)
        self._information = IterationInfo(tools.at(settings.iteration_info)) if settings.iteration_info else None
        # a check that reads files at fixed paths can only run once at a time
        self._alone = threading.Lock()
        self._warned: set[str] = set()
        # hashes of what was printed, with the number of the first check that printed it
        self._printed: dict[int, int] = {}

    def _ours(self) -> set[Path]:
        """The files at fixed paths that are written before each check."""
        settings = self._settings
        return {self._tools.at(name) for name in (settings.place, settings.iteration_info) if name}

    @property
    def wants_feeds(self) -> bool:
        """Whether the command asks for values (by placeholder or by environment variable)."""
        return any(name in self._template.mentions for name in VALUES)

    @property
    def takes_inputs(self) -> bool:
        """Whether the command is handed the values to feed: {inputs}, or within {data}."""
        return not self._template.mentions.isdisjoint(("inputs", "data"))

    @property
    def needs_expected(self) -> bool:
        """Whether the command asks for {references}."""
        return "references" in self._template.mentions

    @property
    def wants_expected(self) -> bool:
        """Whether the command is handed the right values of outputs: {references}, or within {data}."""
        return self.needs_expected or "data" in self._template.mentions

    @property
    def slip(self) -> str:
        """An obvious mistake in the command, in words; empty where there is none."""
        return "" if self._ours() else self._template.slip

    def check(self, candidate: Candidate) -> Verdict:
        """Run the command on one candidate, once or once for each sample.

        Raises CannotJudge where a file that the command names has changed since the run began.
        """
        candidate.folder.mkdir(parents=True, exist_ok=True)
        self._watched.confirm()
        before = set(candidate.folder.iterdir())
        with self._fixed_paths(candidate):
            verdict = self._answer(candidate)
        candidate.left.extend(path for path in candidate.folder.iterdir() if path not in before and not _is_log(path))
        self._show(candidate, verdict)
        self._watched.confirm(verdict.outcome)
        return verdict

    def identity(self) -> dict[str, str]:
        """The argv with digests of the files it names, the rules and the limits."""
        rules = context_of(self._settings)
        env = {name: hide_environment(value, exact=True) for name, value in self._settings.env.items()}
        taken = digest_of_environment("\0".join((*self._template.words, json.dumps(rules))))
        files = {f"file {word}": digest for word, digest in sorted(self._watched.digests.items())}
        return {
            "checker": self.name,
            "command": json.dumps([hide_environment(word, exact=True) for word in self._template.words]),
            "rules": hide_environment(json.dumps({**rules, "env": env}, sort_keys=True)),
            **({"environment": taken} if taken else {}),
            "exceptions": BY_LINE,
            **files,
        }

    def describe(self) -> str:
        """The command, quoted as for a shell."""
        return str(self._template)

    def _answer(self, candidate: Candidate) -> Verdict:
        """Run the command, once or once for each sample, and return what it says."""
        asked = [name for name in ("model", "engine", "switches", "python") if name in self._template.mentions]
        held = {**vars(candidate), **vars(candidate.variant)}
        missing = [name for name in asked if held[name] is None]
        if missing:
            named = " and ".join(f"{{{name}}}" for name in missing)
            return Verdict(
                Outcome.UNRESOLVED, reason=f"the command asks for {named}, which this strategy does not make"
            )
        once = not {"inputs", "references"} & self._template.mentions
        samples: tuple[Sample | None, ...] = (None,) if once else candidate.samples or (Sample({}),)
        every: list[Verdict] = []
        for number, sample in enumerate(samples):
            every.append(self._run(candidate, number, sample))
            if self._badness(every[-1]) == self._badness(None):
                break
        # of several that pass alike the last
        verdict = max(every, key=lambda one: (self._badness(one), one.outcome is Outcome.PASS and every.index(one)))
        if len(samples) > 1:
            counted = {"sample": every.index(verdict), "samples": len(samples)}
            verdict = dataclasses.replace(verdict, metrics={**verdict.metrics, **counted})
        peak = max(one.peak_rss_mb for one in every)
        return dataclasses.replace(verdict, seconds=sum(one.seconds for one in every), peak_rss_mb=peak)

    def _badness(self, verdict: Verdict | None) -> tuple[int, float]:
        """How bad it is what a check says of one sample; None: nothing is worse. What is not known may be a failure."""
        if verdict is None:
            return len(_FROM_GOOD), math.inf
        measure, scale = measured(verdict.metrics), Scale(higher_is_better=self.higher_is_better)
        unmeasured = math.inf if verdict.outcome is Outcome.FAIL else -math.inf
        return _FROM_GOOD.index(verdict.outcome) + 1, unmeasured if measure is None else scale.harm(measure)

    def _run(self, candidate: Candidate, number: int, sample: Sample | None) -> Verdict:
        given = self._values(candidate, number, sample)
        own = {variable(name): text for name, text in given.items()}
        path = candidate.folder / ("check.log" if number == 0 else f"check_{number}.log")
        end = self._runs.run(self._template.fill(given), own, path, fresh=candidate.fresh)
        output = _read(path)
        verdict = self._rules.judge(end, output, self.describe())
        if (handed := hide_environment(output)) != output:
            path.write_text(handed, encoding="utf-8")
            told = self._rules.judge(end, handed, self.describe())
            verdict = told if told.outcome is verdict.outcome else verdict
        if not output:  # nothing to look at later; a run may have thousands of these
            with suppress(OSError):
                path.unlink()
        if verdict.outcome is Outcome.PASS:
            verdict = self._rules.unread(end) or verdict
        missed = verdict.signature and verdict.signature.raised and verdict.signature.raised.about == NOT_IN_NPZ
        if missed and sample is not None and self.needs_expected and not sample.expected:
            # what is missing is missing in a file of ours, so this says nothing about the model
            verdict = Verdict(Outcome.UNRESOLVED, reason=f"no value of an output was recorded: {verdict.reason}")
        measure = self._measure.of(output)
        return dataclasses.replace(
            verdict,
            metrics={**({} if measure is None else {MEASURE: measure}), **verdict.metrics},
            seconds=end.seconds,
            log=self._tools.relative(path) if output else None,
            returncode=end.returncode,
            peak_rss_mb=end.peak_rss_mb,
        )

    def _values(self, candidate: Candidate, number: int, sample: Sample | None) -> dict[str, str]:
        """What the placeholders stand for; npz files and data sets are written only if the command asks for them."""
        given = {"dir": str(candidate.folder), "iteration": str(candidate.iteration)}
        given |= {name: str(path) for name in ("model", "engine") if (path := getattr(candidate, name))}
        suffix = "" if len(candidate.samples) < 2 else f"_{number}"
        if candidate.variant.switches is not None:
            given["switches"] = shlex.join(candidate.variant.switches)
        if candidate.variant.python is not None:
            given["python"] = candidate.variant.python
        if sample is not None and "inputs" in self._template.mentions:
            given["inputs"] = self._npz(candidate, sample.feeds, f"inputs{suffix}.npz")
        if sample is not None and "references" in self._template.mentions:
            given["references"] = self._npz(candidate, sample.expected, f"references{suffix}.npz")
        if "data" in self._template.mentions:
            given["data"] = str(_data_sets(candidate))
        return given

    def _npz(self, candidate: Candidate, tensors: Mapping[str, TensorFile], name: str) -> str:

        path = candidate.folder / name
        candidate.values.append(path)
        for tensor in write_npz(tensors, path):
            if tensor not in self._warned:
                self._warned.add(tensor)
                log.warning(
                    "%s: numpy has no type for %s, so it is not in the npz; {data} has every type", name, tensor
                )
        return str(path)

    @contextmanager
    def _fixed_paths(self, candidate: Candidate) -> Iterator[None]:
        if not self._ours():
            yield
            return
        with self._alone:
            if self._information:
                self._information.write(candidate)
            with self._placed(candidate.model):
                yield

    def _show(self, candidate: Candidate, verdict: Verdict) -> None:
        show = self._settings.show_output
        # how a control fails is said where that matters; some are made to fail
        failing = verdict.outcome is not Outcome.PASS and candidate.phase != Phase.CONTROL
        if show is ShowOutput.none or (show is ShowOutput.failing and not failing) or verdict.log is None:
            return
        lines = plain(_read(self._tools.run_folder / verdict.log)).splitlines()
        more = len(lines) - _SHOWN_LINES
        shown = [f"... ({more} lines more in {verdict.log})"] if more > 0 else []
        shown += [
            line if len(line) <= _SHOWN_LETTERS else f"{line[:_SHOWN_LETTERS]}..." for line in lines[-_SHOWN_LINES:]
        ]
        if lines:
            text = "\n".join(shown)
            first = self._first_to_print("\n".join(lines), candidate) if len(shown) > 1 else candidate.iteration
            told = f":\n{text}" if first == candidate.iteration else f" the same as in [{first}]"
            # what is made of its exit code stands in the line of the same number that follows
            log.info("[%d] the check printed%s", candidate.iteration, told, extra={CHECK_OUTPUT: text})

    def _first_to_print(self, text: str, candidate: Candidate) -> int:
        """Return the number of the first check that printed this, wherever its candidate lay."""
        return self._printed.setdefault(hash(text.replace(str(candidate.folder), "")), candidate.iteration)


def _is_log(path: Path) -> bool:
    return path.name.startswith("check") and path.suffix == ".log"


def _read(path: Path) -> str:
    # a check may have put anything in its place
    return read_plain(path).decode("utf-8", "replace")


def _data_sets(candidate: Candidate) -> Path:
    folder = candidate.folder / "data"
    if not folder.exists():
        # a half-written folder of a run that was killed must not look like a whole one
        partial = candidate.folder / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for number, sample in enumerate(candidate.samples or (Sample({}),)):
            write_test_data_set(sample.feeds, sample.expected, partial / f"test_data_set_{number}")
        partial.rename(folder)
        candidate.values.append(folder)
    return folder
