"""A command of the user's judges: what it is asked, and its runs."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import re
import shlex
import shutil
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runner.checkers.checker import Checker, Tools
from runner.checkers.command_template import VALUES, Template, Watched, variable
from runner.checkers.exit_and_output import BY_LINE, NOT_IN_NPZ, SHELL_KILLED, ExitRules, uncaught
from runner.checkers.failure_text import Measure, normalize
from runner.checkers.preload import Preloaded
from runner.disk_space import FULL
from runner.exit_codes import CannotJudge, UsageError
from runner.files import json_of, read_plain, stamp
from runner.judgment import MEASURE, Scale, measured
from runner.model.files.parse_without_weights import LARGE_FILE, weights_beside
from runner.model.values import tensor_bytes
from runner.model.values.recorded import write_npz, write_test_data_set
from runner.schema.checker import CommandChecker, Flaky, InteractiveChecker, ShowOutput
from runner.schema.settings import context_of
from runner.text import digest_of_environment, hide_environment, plain
from runner.verdict import CHECK_OUTPUT, NO_IMPORT, Candidate, Phase, Sample, Verdict
from runner.workers.commands import CommandEnd, Starters, run_command
from runner.workers.process_tree import HEAD_BYTES, JUDGED_BYTES, BoundedLog, Kills
from runner.workers.reply import KILLED, OUT_OF_MEMORY
from strategies.search import Outcome

if TYPE_CHECKING:
    from runner.model.values.recorded import TensorFile

# What lies at a fixed path for a check that always reads the same file: the candidate, and what is said of it.

Placed = AbstractContextManager[object]


class Placement:
    """Puts candidates, one at a time, at ``path``; it never touches a file that it did not put there.

    A note in ``run_folder`` remembers what was placed, so that a run which was killed knows its own file when it goes
    on: by its inode, for the note may be anybody's, and so may be what lies there by now. All files of weights that a
    candidate refers to (a large one, or the user's own model) are copied beside it under the names by which it refers
    to them, once: a copy is used again as long as neither it nor what it is a copy of has changed. Raises UsageError if
    a file of the user's is in the way.
    """

    def __init__(self, path: Path, run_folder: Path, *, keep: bool) -> None:
        self._path = path
        self._keep = keep
        self._note = run_folder / "placed.json"
        self._lock = threading.Lock()
        # the files that are ours, with their inodes
        self._ours = self._read_note()
        # of each file of weights that this process has placed, what it was copied from and what it was then
        self._copied: dict[Path, tuple[object, ...]] = {}
        self._refuse_foreign(path)

    @contextmanager
    def of(self, model: Path | None) -> Iterator[None]:
        """Have ``model`` at the path inside the `with` block; nothing happens for a candidate without a model."""
        if model is None:
            yield
            return
        with self._lock:
            try:
                self._put(model)
            except OSError as error:
                raise unwritable("checker.place", self._path, error) from error
            try:
                yield
            finally:
                if not self._keep:
                    self._take_away()

    def _take_away(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:  # a check may have put a folder there
            raise unwritable("checker.place", self._path, error) from error

    def _put(self, model: Path) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for location, source in _weights(model).items():
            if not source.is_file():
                raise UsageError(f"checker.place: {model} cannot be placed: its weights {source} are missing")
            self._put_weights(source, self._path.parent / location)
        self._copy(model, self._path)

    def _put_weights(self, source: Path, target: Path) -> None:
        if target == self._path:
            raise UsageError(
                f"checker.place={self._path}: the model's weights lie in a file of this name; choose another path"
            )
        if target.exists() and target not in self._ours and target.samefile(source):
            return  # the user's own weights, and the path is in their folder
        if target.exists() and self._copied.get(target) == (source, stamp(source), stamp(target)):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        self._copy(source, target)
        if not self._keep and target not in self._copied:
            weakref.finalize(self, target.unlink, missing_ok=True)
        self._copied[target] = source, stamp(source), stamp(target)

    def _copy(self, source: Path, target: Path) -> None:
        self._refuse_foreign(target)
        if target not in self._ours:
            # noted before it is there: a run that is killed in between must know the file, which is empty then
            self._remember(target, None)
        target.unlink(missing_ok=True)
        with target.open("xb") as file:
            inode = os.fstat(file.fileno()).st_ino
        if self._ours.get(target) != inode:
            self._remember(target, inode)
        shutil.copyfile(source, target)

    def _remember(self, target: Path, inode: int | None) -> None:
        self._ours[target] = inode
        self._note.parent.mkdir(parents=True, exist_ok=True)
        noted = json.dumps({str(path): inode for path, inode in self._ours.items()})
        tensor_bytes.write_whole(self._note, [noted.encode()])

    def _refuse_foreign(self, path: Path) -> None:
        if os.path.lexists(path) and path not in self._ours:
            raise UsageError(
                f"checker.place: {path} exists and was not put there by this run; nothing is written over it. "
                "Remove it, or choose another path with checker.place=PATH"
            )

    def _read_note(self) -> dict[Path, int | None]:
        noted = json_of(self._note)
        found = noted.items() if isinstance(noted, dict) else ()
        return {Path(path): inode for path, inode in found if _is(Path(path), inode)}


def placing(settings: CommandChecker | InteractiveChecker, tools: Tools) -> Callable[[Path | None], Placed]:
    """Return what has a model at ``checker.place`` inside a `with` block; it does nothing where no place is set."""
    if not settings.place:
        return nullcontext
    return Placement(tools.at(settings.place), tools.run_folder, keep=settings.keep_placed).of


class IterationInfo:
    """Says of each candidate, in the JSON file ``path``, which one it is.

    Raises UsageError where a file of the user's is in the way: one that holds anything else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            there = path.exists()
        except OSError as error:
            raise unwritable("checker.iteration_info", path, error) from error
        held = json_of(path) if there else {}
        if there and not (isinstance(held, dict) and held.keys() == {"iteration", "phase", "label", "nodes"}):
            raise UsageError(f"checker.iteration_info: {path} exists and holds something else; choose another path")

    def write(self, candidate: Candidate) -> None:
        """Write it for this candidate."""
        told = {"iteration": candidate.iteration, "phase": candidate.phase, "label": candidate.label}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            tensor_bytes.write_whole(self._path, [json.dumps({**told, "nodes": list(candidate.nodes)}).encode()])
        except OSError as error:
            raise unwritable("checker.iteration_info", self._path, error) from error


def _is(path: Path, inode: object) -> bool:
    """Return whether the file of this number lies there, or an empty one; also where there is none."""
    try:
        found = path.lstat()
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(found.st_mode) and (found.st_ino == inode or not found.st_size)


def unwritable(key: str, path: Path, error: OSError) -> Exception:
    """Return what to raise where a file at a fixed path cannot be written; a full disk is not the path's fault."""
    if error.errno in FULL:
        return error
    return UsageError(f"{key}={path} cannot be written ({error.strerror or error}); choose another path")


def _weights(model: Path) -> dict[str, Path]:
    """The files that a model refers to, by the names that it has for them; few models have to be parsed for that."""
    inside = model.stat().st_size <= LARGE_FILE and b"location" not in model.read_bytes()
    return {} if inside else weights_beside(model)


# One run of a check's command: as a process of its own, or forked, and again where that alone may be why it ended.


class CommandRuns:
    """Runs the command of a check within its limits. Safe for threads.

    ``words``: the command's, with placeholders.
    """

    def __init__(self, settings: CommandChecker, words: Sequence[str], tools: Tools) -> None:
        self._settings = settings
        self._tools = tools
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
                    self._tools.pool.user_lease() as lease,
                    self.preloaded.server(argv, fresh=fresh) as server,
                    nullcontext() if server else self._starters.starter() as starter,
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
# when a runtime printed a line
_WHEN = re.compile(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d[.,]?\d*")
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
        self._runs = CommandRuns(settings, self._template.words, tools)
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
        for path in candidate.folder.iterdir():
            if path not in before and not (path.name.startswith("check") and path.suffix == ".log"):
                candidate.left.append(path)
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
            if every[-1].outcome is Outcome.FAIL and measured(every[-1].metrics) is None:
                break  # nothing is worse
        # of several that pass alike the last
        verdict = max(every, key=lambda one: (self._badness(one), one.outcome is Outcome.PASS and every.index(one)))
        if len(samples) > 1:
            counted = {"sample": every.index(verdict), "samples": len(samples)}
            verdict = dataclasses.replace(verdict, metrics={**verdict.metrics, **counted})
        peak = max(one.peak_rss_mb for one in every)
        return dataclasses.replace(verdict, seconds=sum(one.seconds for one in every), peak_rss_mb=peak)

    def _badness(self, verdict: Verdict) -> tuple[int, float]:
        """How bad it is what a check says of one sample. What is not known may be a failure."""
        measure, scale = measured(verdict.metrics), Scale(higher_is_better=self.higher_is_better)
        unmeasured = math.inf if verdict.outcome is Outcome.FAIL else -math.inf
        return _FROM_GOOD.index(verdict.outcome), unmeasured if measure is None else scale.harm(measure)

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
        if verdict.reason.startswith(NO_IMPORT):  # the user may have meant another interpreter
            program = shutil.which(self._template.words[0], path=self._settings.env.get("PATH"))
            verdict = dataclasses.replace(verdict, reason=f"{verdict.reason} (run by {program})")
        with suppress(OSError):
            if output:
                with path.open("r+b") as log_file:
                    BoundedLog(log_file.fileno()).trim(end.left_out)
            else:  # nothing to look at later; a run may have thousands of these
                path.unlink()
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
            printed = "\n".join(lines).replace(str(candidate.folder), "")  # wherever the candidate lay
            died = uncaught(printed)
            traced = died if died and died.raised.where else None
            said = (traced.raised.where, normalize(traced.said)) if traced else ()
            key = hash((said, _WHEN.sub("", traced.rest if traced else printed)))
            first = self._printed.setdefault(key, candidate.iteration)
            again = first != candidate.iteration
            told = f" the same{' traceback' * bool(traced)} as in [{first}]" if again else f":\n{text}"
            # what is made of its exit code stands in the line of the same number that follows
            level = logging.DEBUG if again and show is ShowOutput.failing else logging.INFO
            log.log(level, "[%d] the check printed%s", candidate.iteration, told, extra={CHECK_OUTPUT: text})


def _read(path: Path) -> str:
    # a check may have put anything in its place
    return read_plain(path, HEAD_BYTES + JUDGED_BYTES + 4096).decode("utf-8", "replace")


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
