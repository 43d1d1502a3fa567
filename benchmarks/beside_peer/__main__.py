"""Winnow beside `polygraphy debug reduce --mode bisect`: seconds, checks, nodes left, memory, disk.

    python -m benchmarks.beside_peer [--big] [--zoo FOLDER] [--rounds 3] [--limit 600] [--groups models nodes ...]

A structural check with one culprit, which stands elsewhere in each round, the same for all tools, which take turns.
Models: one that comes with the onnx package, FOLDER/NAME/model.onnx, and generated ones that grow with their nodes (100
to 10,000) and weights (10 MB to 1 GB); with --big also 100,000 nodes, 1.9 GB in a single file, 4 GB, and a decoder
stack of 3.2 GB. With workers (1, 2, 4) each check sleeps for a second. The peer is installed into a folder of its own
(--cache) unless --peer-python names an interpreter that has it; --pip-option is handed to pip as it is. Models that
the folder of results has already, and that this run does not measure anew, stay in its tables. The peer has one check
at a time, a command, and so has Winnow: most of its checks are forked from a process that has imported onnx already
(checker.preload=auto). It has further lines for what is the user's choice: each check an interpreter of its own
(checker.preload=[]), the same check as a function (checker=python), and two checks at once, which may not bear each
other.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
import psutil

from benchmarks.beside_peer import generated_models, kept_results
from benchmarks.beside_peer.measured_process import Limits
from benchmarks.beside_peer.results_table import Row, header, lines
from benchmarks.beside_peer.tools import Question, Tool, install, run, versions
from benchmarks.result_folder import measured_with, result_folder

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
    rows = kept_results.load(out)
    print("\n".join(header()), flush=True)
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
        print("\n".join(lines(row)), flush=True)
        kept_results.add(rows, row)
        kept_results.save(out, NOTE, facts, rows)


if __name__ == "__main__":
    main()
