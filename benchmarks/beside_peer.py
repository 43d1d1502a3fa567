"""Winnow beside `polygraphy debug reduce --mode bisect`: seconds, checks, nodes left, memory, disk.

    python -m benchmarks.beside_peer [--big] [--zoo FOLDER] [--rounds 3] [--limit 600] [--groups models nodes ...]

A structural check with one culprit, which stands elsewhere in each round, the same for all tools, which take turns.
Models: one that comes with the onnx package, FOLDER/NAME/model.onnx, and generated ones that grow with their nodes (100
to 10,000) and weights (10 MB to 1 GB); with --big also 100,000 nodes, 1.9 GB in a single file, 4 GB, and a decoder
stack of 3.2 GB. With workers (1, 2, 4) each check sleeps for a second. The peer is installed into a folder of its own
(--cache) unless --peer-python names an interpreter that has it; --pip-option is handed to pip as it is. The peer
has one check at a time, a command, and so has Winnow: most of its checks are forked from a process that has imported
onnx already (checker.preload=auto). It has further lines for what is the user's choice: each check an interpreter of
its own (checker.preload=[]), the same check as a function (checker=python), and two checks at once, which may not bear
each other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import onnx
import psutil

from benchmarks import ROOT, generated_models, measured_with, result_folder

_PAUSE = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """A command that has ended.

    ``cpu``: of it and all that it waited for. ``job_mb``: the peak of its own process; ``tree_mb``: the largest sum
    over its processes at any look, 20 times a second; shared pages count in each. ``stopped``: the limit it ran into.
    """

    code: int
    wall: float
    cpu: float
    job_mb: float
    tree_mb: float
    stopped: str = ""


@dataclass(frozen=True)
class Limits:
    """What a command may take before it is killed, with all that it started."""

    seconds: float
    memory_mb: float = float("inf")

    def passed(self, seconds: float, memory: int) -> str:
        """Return which limit is passed, as words; empty: none."""
        if seconds > self.seconds:
            return f"{self.seconds:,.0f} s"
        return f"{self.memory_mb:,.0f} MB" if memory > self.memory_mb * 1e6 else ""


def measure(argv: Sequence[str], folder: Path, environment: Mapping[str, str], limits: Limits, log: Path) -> Cost:
    """Run a command in a folder, with its output in ``log``."""
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    job = tree = 0
    stopped = ""
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        job = max(job, _high_water(process.pid))
        processes = _tree(process.pid)
        now = sum(map(_resident, processes))
        tree = max(tree, now)
        stopped = stopped or limits.passed(time.monotonic() - started, now)
        for one in processes if stopped else ():
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(_PAUSE)
    wall = time.monotonic() - started
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen waits for it no more
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(process.returncode, wall, cpu, job / 1e6, max(tree, job) / 1e6, stopped)


def room(folder: Path) -> float:
    """Return the megabytes that a folder takes on the disk; a file with several names counts once."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return sum(found.values()) / 1e6


def _tree(root: int) -> list[int]:
    """Return a process and all that descend from it, the oldest first."""
    found = [root]
    for pid in found:
        with suppress(ProcessLookupError):  # a thread may end while its folder is looked into
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in _read(children).split()]
    return found


def _resident(pid: int) -> int:
    words = _read(Path(f"/proc/{pid}/statm")).split()
    return int(words[1]) * _PAGE if words else 0


def _high_water(pid: int) -> int:
    line = next((line for line in _read(Path(f"/proc/{pid}/status")).splitlines() if line.startswith("VmHWM")), "")
    return int(line.split()[1]) << 10 if line else 0


def _read(path: Path) -> str:
    """Return a file of /proc, which is gone as soon as its process is."""
    try:
        return path.read_text()
    except OSError:
        return ""


CHECK = Path(__file__).with_name("structural_check.py")
REQUIREMENTS = ("polygraphy==0.53.6", "onnx", "onnxruntime", "onnx-graphsurgeon", "numpy")
"""What the peer needs. Where torch is installed as well, it starts six times as slowly."""


@dataclass(frozen=True)
class Question:
    """A model that fails as long as it holds the node that makes ``culprit``.

    ``sleep``: seconds that each check takes beside its own work.
    """

    model: Path
    culprit: str
    sleep: float = 0.0


@dataclass(frozen=True)
class Tool:
    """Winnow with so many workers, or the peer (``python``: its interpreter).

    ``function``: the check is a function of a file, which a warm process calls, and no command.
    """

    name: str
    workers: int = 1
    python: Path | None = None
    options: tuple[str, ...] = ()
    function: bool = False

    def command(self, question: Question, run: Path) -> list[str]:
        """Return what to call; all that it leaves lies in ``run``."""
        check = [sys.executable, str(CHECK), "{model}", question.culprit]
        if self.python:
            check[2] = "polygraphy_debug.onnx"
            program = [str(self.python), str(self.python.with_name("polygraphy"))]
            tool = [*program, "debug", "reduce", str(question.model), "--mode", "bisect"]
            return [*tool, "-o", str(run / "reduced.onnx"), "--fail-code", "1", *self.options, "--check", *check]
        checker = ("checker=command", f"checker.command={json.dumps(check)}", "checker.fail_codes=[1]")
        if self.function:
            checker = ("checker=python", f"checker.file={CHECK}")
        return [
            *(sys.executable, "-m", "runner", "strategy=reduce", f"model={question.model}", f"hydra.run.dir={run}"),
            *checker,
            *(f"workers.count={self.workers}", "verbosity=warning", *self.options),
        ]


@dataclass(frozen=True)
class Measured:
    """One run of a tool.

    ``search`` and ``trust``: checks; those of the cause count as trust, and the peer has none. ``beside``: CPU seconds
    that are not the checks' own. ``left``: nodes of the answer; ``exact``: it is the culprit and nothing else.
    ``error``: why there is no answer.
    """

    tool: str
    cost: Cost
    checks: int
    search: int
    trust: int
    beside: float
    left: int | None
    exact: bool
    disk_mb: float
    error: str = ""


def run(tool: Tool, question: Question, scratch: Path, limits: Limits) -> Measured:
    """Run a tool in a new folder."""
    folder = scratch / "run"
    folder.mkdir(parents=True)
    log, checks = scratch / "output.txt", scratch / "checks.txt"
    checks.touch()
    told = {"CHECK_LOG": str(checks), "CHECK_SECONDS": str(question.sleep), "CHECK_TENSORS": question.culprit}
    environment = {**told, "OMP_NUM_THREADS": "1"}
    working = folder if tool.python else ROOT
    cost = measure(tool.command(question, folder), working, environment, limits, log)
    seconds = [float(line) for line in checks.read_text().split()]
    counts = _counts(folder / "result.json", len(seconds))
    answer = folder / "reduced.onnx"
    left, exact = _answer(answer, question.culprit) if cost.code == 0 and answer.is_file() else (None, False)
    error = ""
    if left is None:
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        error = f"stopped at {cost.stopped}" if cost.stopped else f"exit {cost.code}: {last[:200]}"
    beside = cost.cpu - sum(seconds)
    return Measured(tool.name, cost, len(seconds), *counts, beside, left, exact, room(folder), error)


def _counts(result: Path, checks: int) -> tuple[int, int]:
    """Return checks of the search, and all others."""
    found = json.loads(result.read_text())["checks"]["search"] if result.is_file() else checks
    return found, checks - found


def _answer(path: Path, culprit: str) -> tuple[int, bool]:
    """Return how many nodes are left, and whether it is the culprit alone."""
    nodes = [node for node in onnx.load(path, load_external_data=False).graph.node if node.op_type != "Constant"]
    return len(nodes), [node.output[0] for node in nodes] == [culprit]


def install(folder: Path, options: Sequence[str]) -> Path:
    """Return the interpreter of a virtual environment with the peer, made where it is not there. ``options``: pip's."""
    python = folder / "bin" / "python"
    if not (folder / ".installed").is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *options, *REQUIREMENTS], check=True)
        (folder / ".installed").touch()
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the versions of what matters in an interpreter's packages."""
    code = (
        "import json, platform; from importlib import metadata\n"
        "names = ('polygraphy', 'onnx', 'onnxruntime', 'onnx-graphsurgeon', 'numpy', 'protobuf')\n"
        "there = {d.metadata['Name'].lower().replace('_', '-') for d in metadata.distributions()}\n"
        "found = {n: metadata.version(n) for n in names if n in there}\n"
        "print(json.dumps({'python': platform.python_version(), **found}))"
    )
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(found.stdout))


COLUMNS = (
    *("model", "nodes", "MB", "tool", "wall s", "CPU s", "times the first: wall, CPU", "beside checks, ms per check"),
    *("search + trust", "left", "exact", "job MB", "tree MB", "disk MB", "measured"),
)


@dataclass
class Row:
    """All runs on one model, by tool; what others are compared with comes first. ``at``: where it stands in a plot."""

    group: str
    name: str
    nodes: int
    megabytes: float
    at: float
    runs: dict[str, list[Measured]] = field(default_factory=dict)
    measured: str = ""

    def middle(self, tool: str, figure: Callable[[Measured], float | None]) -> float | None:
        """Return the median of a figure over the runs that have one."""
        found = [value for value in map(figure, self.runs[tool]) if value is not None]
        return median(found) if found else None

    def seconds(self, tool: str) -> tuple[float, float] | None:
        """Return the medians of wall and CPU time; None where a run has no answer."""
        runs = self.runs[tool]
        if any(one.error for one in runs):
            return None
        return median(one.cost.wall for one in runs), median(one.cost.cpu for one in runs)

    def ratios(self, tool: str) -> tuple[float, float] | None:
        """Return how many times the first tool's wall and CPU time this one takes."""
        mine, first = self.seconds(tool), self.seconds(next(iter(self.runs)))
        return (mine[0] / first[0], mine[1] / first[1]) if mine and first else None

    def lines(self) -> list[str]:
        """Return the row's lines of the table."""
        return [self._line(tool) for tool in self.runs]

    def _line(self, tool: str) -> str:
        runs, middle = self.runs[tool], partial(self.middle, tool)
        errors = [run.error for run in runs if run.error]
        if errors:
            cells = [errors[0].replace("|", "/"), "", "", ""]
        else:
            beside = middle(lambda run: 1000 * run.beside / max(run.checks, 1))
            seconds, ratios = self.seconds(tool) or (), self.ratios(tool) or ()
            cells = [*(_text(one, 1) for one in seconds), ", ".join(_text(one, 2) for one in ratios), _text(beside, 0)]
        search, trust = middle(lambda run: run.search), middle(lambda run: run.trust)
        return _joined(
            *(self.name, f"{self.nodes:,}", _text(self.megabytes, 1), tool, *cells),
            *(f"{_text(search, 0)} + {_text(trust, 0)}", _text(middle(lambda run: run.left), 0)),
            f"{sum(run.exact for run in runs)} of {len(runs)}",
            *(_text(middle(lambda run: run.cost.job_mb), 0), _text(middle(lambda run: run.cost.tree_mb), 0)),
            *(_text(middle(lambda run: run.disk_mb), 1), self.measured),
        )


def _joined(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


HEAD = (_joined(*COLUMNS), "|---" * len(COLUMNS) + "|")


def page(title: str, notes: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a Markdown page of a table for each group."""
    parts = [f"# {title}", *notes]
    for group in dict.fromkeys(row.group for row in rows):
        table = [line for row in rows if row.group == group for line in row.lines()]
        parts += [f"## {group}", "\n".join([*HEAD, *table])]
    return "\n\n".join(parts) + "\n"


SHARES = (0.37, 0.81, 0.12)
"""Where the culprit stands in each round, as a share of all nodes that depend on the inputs."""
GROUPS = {
    "models": "models",
    "nodes": "growth with nodes",
    "weights": "growth with weights",
    "workers": "checks that sleep a second",
}
NOTE = """
Medians. `times the first`: wall time beside the first line of the same model (of workers: beside one). `beside checks`:
CPU of all processes that is not the checks' own, with start and recording (a command's own CPU has the start of its
interpreter and its imports in it, unless it was forked from a process that has made them). `winnow`: checks are forked
where that says as much; `checker.preload=[]`: each is an interpreter of its own, as all were before that was the
default. `winnow, a function`: checker=python. `search + trust`:
checks; the peer has none but those of its search. `left`: nodes of the answer (Constants are none). `job`, `tree`: peak
memory of the tool's own process, and of all processes together (shared pages count in each). `disk`: what the run
leaves. `measured`: commit and the load average of the last 15 minutes: beyond the number of CPUs only CPU time says
anything, since wall time is mostly waiting, and a tool that starts sessions of its own waits less.
""".strip()


@dataclass(frozen=True)
class Model:
    """A model of a group: ``make`` writes or links it into a folder and returns its path."""

    group: str
    name: str
    at: float
    make: Callable[[Path], Path]
    sleep: float = 0.0


def _generated(write: Callable[[Path], None], folder: Path) -> Path:
    path = folder / "model.onnx"
    write(path)
    return path


def models(given: argparse.Namespace) -> Iterator[Model]:
    """Return the models of the groups that are asked for, the small ones first."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_resnet50.onnx"
    if "models" in given.groups:
        if light.is_file():
            yield Model("models", "light_resnet50", 0, lambda _: light)
        for path in sorted(given.zoo.glob("*/model.onnx")) if given.zoo else ():
            yield Model("models", path.parent.name, 0, lambda _, path=path: path)
        if given.big:
            write = partial(generated_models.decoder_stack, 12, 2048)
            yield Model("models", "decoder stack", 0, partial(_generated, write))
    grow = {
        "nodes": (generated_models.by_nodes, (100, 1_000, 10_000), (100_000,), "chain of {:,}"),
        "weights": (generated_models.by_weights, (10, 100, 1_000), (1_900, 4_000), "layers, {:,} MB"),
    }
    for group, (make, sizes, big, name) in grow.items():
        for size in (*sizes, *(big if given.big else ())) if group in given.groups else ():
            yield Model(group, name.format(size), size, partial(_generated, partial(make, size)))
    if "workers" in given.groups:
        write = partial(generated_models.by_nodes, 1_000)
        yield Model("workers", "chain of 1,000", 0, partial(_generated, write), sleep=1.0)


def compare(model: Model, tools: list[Tool], given: argparse.Namespace) -> Row:
    """Run all tools on a model in turns; one that has no answer is not asked again."""
    with tempfile.TemporaryDirectory(dir=given.scratch, prefix="beside-peer-") as scratch:
        path = model.make(Path(scratch) / "model")
        size = sum(one.stat().st_size for one in {path, *path.parent.glob("model.onnx?*"), *path.parent.glob("*.bin")})
        row = Row(GROUPS[model.group], model.name, 0, size / 1e6, model.at, {tool.name: [] for tool in tools})
        for number in range(given.rounds):
            culprit, row.nodes = generated_models.culprit(path, SHARES[number % len(SHARES)])
            question = Question(path, culprit, model.sleep)
            for tool in tools[:: 1 - 2 * (number % 2)]:
                runs = row.runs[tool.name]
                if any(one.error for one in runs):
                    continue
                folder = Path(scratch) / "run"
                runs.append(run(tool, question, folder, Limits(given.limit, given.memory)))
                shutil.rmtree(folder)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--zoo", type=Path, help="a folder with NAME/model.onnx")
    parser.add_argument("--models", nargs="+", help="names as the table has them; else all")
    parser.add_argument("--big", action="store_true", help="needs 10 GB of memory and of disk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of a tool")
    memory = psutil.virtual_memory().total / 2e6
    parser.add_argument("--memory", type=float, default=memory, help="MB for all processes of a run; else half of all")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has polygraphy")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/winnow-benchmarks/polygraphy").expanduser())
    parser.add_argument("--pip-option", action="append", default=[])
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--winnow-option", action="append", default=[], help="a key=value for each run of Winnow")
    parser.add_argument("--scratch", type=Path, help="where models and runs lie meanwhile")
    parser.add_argument("--out", type=Path, help="else benchmarks/results/DATE-VERSION")
    given = parser.parse_args()
    options = tuple(given.winnow_option)
    peers, facts = [], {"Winnow": measured_with()}
    if not given.without_peer:
        python = (given.peer_python or install(given.cache, given.pip_option)).absolute()
        peers, facts["Peer"] = [Tool("polygraphy", python=python)], versions(python)
    out = given.out or result_folder()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    notes = [NOTE, *(f"{name}: {', '.join(map(' '.join, found.items()))}." for name, found in facts.items())]
    print("\n".join(HEAD), flush=True)
    for model in models(given):
        if given.models and model.name not in given.models:
            continue
        if model.group == "workers":
            some = [Tool(f"winnow, {count} workers", count, options=options) for count in (1, 2, 4)]
            tools = [*some, *peers]
        else:
            tools = [
                *(*peers, Tool("winnow", options=options)),
                Tool("winnow, checker.preload=[]", options=("checker.preload=[]", *options)),
                Tool("winnow, a function", options=options, function=True),
            ]
            if model.group == "models":
                tools.append(Tool("winnow, 2 workers", 2, options=options))
        row = compare(model, tools, given)
        row.measured = f"{facts['Winnow']['commit']}, load {os.getloadavg()[2]:.0f}"
        print("\n".join(row.lines()), flush=True)
        rows.append(row)
        (out / "beside_peer.md").write_text(page("Winnow beside its peer", notes, rows))


if __name__ == "__main__":
    main()
