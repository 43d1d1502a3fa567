"""Hand over hostile configurations, replay files and run folders: no code runs, one clear line each.

    python -m benchmarks.hostile_configs [--seed 1 --seed 2] [--configurations 400] [--replays 100] [--lists 200]

Each configuration is read by a process of its own (a fork, so that a thousand take minutes), with an audit hook that
sees what is imported, started, unpickled, connected and opened outside the case's folder. Prints a table by seed and
kind, then each problem. Seed 1 is the one the reader was mended by, seed 2 was held back.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml
from hydra import compose, initialize_config_dir

from benchmarks.malformed import Columns, Row, codes, peak, slowest, table
from runner import run_folder as marker
from runner.checkers.command import Placement
from runner.cli import job_notes
from runner.cli.app import run
from runner.cli.compose import register, to_settings
from runner.exit_codes import UsageError
from runner.journal.journal import Journal
from runner.journal.kept_files import Artifacts
from runner.journal.replay_yaml import configuration, escaped, write_replay
from runner.schema.installed_choices import CONF
from runner.schema.root import ArtifactSettings
from runner.sweeps.sweep import Sweep
from runner.sweeps.table import markdown
from runner.sweeps.table import rows as rows_of
from runner.verdict import Raised, Signature, Verdict
from strategies.search import Outcome, Trial

CANARY = "CANARY"
MODULE = "canary_module"


@dataclass(frozen=True)
class Hostile:
    """One case. ``files``: by path below its folder; ``options``: of the command line, besides the file."""

    kind: str
    name: str
    files: dict[str, str | bytes]
    options: tuple[str, ...] = ()


def objects(canary: str) -> list[Any]:
    """What Hydra would make an object of."""
    return [
        {"_target_": "subprocess.Popen", "args": ["touch", canary]},
        {"_target_": "os.system", "_args_": [f"touch {canary}"]},
        {"_target_": "psutil.Popen", "_args_": [["touch", canary]]},
        {"_target_": "pathlib.Path.touch", "_args_": [{"_target_": "pathlib.Path", "_args_": [canary]}]},
        {"_target_": "builtins.exec", "_args_": [f"open({canary!r}, 'w')"]},
        {"_target_": "builtins.open", "_args_": [canary, "w"]},
        {"_target_": f"{MODULE}.run"},
        {"_target_": "runpy.run_module", "_args_": [MODULE]},
        {"_target_": "importlib.import_module", "_args_": [MODULE]},
        {"_target_": "joblib.load", "_args_": ["evil.pkl"]},
        {"_target_": "numpy.load", "_args_": ["evil.pkl"], "allow_pickle": True},
        {"_target_": "sympy.sympify", "_args_": [f"open({canary!r}, 'w')"]},
    ]


def handlers(canary: str) -> list[Any]:
    """What logging would make an object of."""
    return [
        {"()": "subprocess.Popen", "args": ["touch", canary]},
        {"()": f"ext://{MODULE}.run"},
        {"class": f"{MODULE}.Handler"},
        {"class": "logging.FileHandler", "filename": canary},
        {"()": "builtins.open", "file": canary, "mode": "w"},
    ]


#: below ``hydra``: where an object, what describes a logger's part, and what a plain value might do
_OBJECTS = (
    *("callbacks.x", "callbacks.winnow", "callbacks", "launcher", "launcher.x", "launcher.n_jobs", "launcher.x.0"),
    *("sweeper", "sweeper.x", "sweeper.params.x", "sweeper.params", "x", "run.dir", "sweep.subdir", "help", "env.x"),
)
_HANDLERS = tuple(
    f"{logging}.{part}.x"
    for logging in ("job_logging", "hydra_logging")
    for part in ("handlers", "formatters", "filters")
)
_PLAIN: tuple[tuple[str, Any], ...] = (
    ("job.env_set.LD_PRELOAD", "evil.so"),
    ("job.env_set", {"PYTHONPATH": "."}),
    ("job.env_copy", ["HOME"]),
    ("job.name", "../../x"),
    ("job.chdir", True),
    ("searchpath", [f"pkg://{MODULE}"]),
    ("searchpath", ["file://../outside"]),
    ("searchpath", f"pkg://{MODULE}"),
    ("output_subdir", "../../outside"),
    ("runtime.output_dir", "../outside"),
    ("runtime.cwd", "/"),
    ("overrides.hydra", ["hydra.job_logging.x=1"]),
    ("overrides.task", ["model=x"]),
    ("job_logging.version", 2),
    ("job_logging", {"version": 1, "root": {"handlers": ["x"]}, "handlers": {"x": {"class": f"{MODULE}.Handler"}}}),
    ("job_logging.loggers.x", {"handlers": [f"ext://{MODULE}.run"]}),
    ("hydra_logging.root.handlers", [f"cfg://{MODULE}"]),
    ("help.template", f"${{oc.create:{MODULE}}}"),
    ("verbose", [MODULE]),
    ("mode", MODULE),
    ("launcher._target_", f"{MODULE}.run"),
    ("sweeper._target_", f"{MODULE}.run"),
    ("launcher._partial_", True),
    ("sweeper.params", {"hydra.launcher._target_": f"{MODULE}.run"}),
    ("sweeper.params", {"+hydra.callbacks.x._target_": f"{MODULE}.run"}),
    ("sweeper.params", {"hydra/launcher": "evil"}),
    ("sweeper.params", {"+experiment@hydra.callbacks": "evil"}),
    ("sweeper.params", {"+experiment": "evil,other"}),
)
#: settings of Winnow's own that hold a name, or text that some code might look up
_NAMES = (
    *("strategy", "checker", "target", "reference", "inputs", "artifacts", "workers", "strategy.name", "checker.name"),
    *("target.name", "inputs.name", "strategy.search", "strategy.subject", "target.flavor", "target.providers"),
    *("verbosity", "checker.metric", "checker.rtol", "checker.regex", "target.session_options"),
    *("target.provider_options", "inputs.shapes", "inputs.ranges", "recorded", "log.format", "artifacts.paths"),
    *("result.external_data", "cwd"),
)


def _nested(path: str, value: Any) -> Any:
    for part in reversed(path.split(".")):
        value = [value] if part == "0" else {part: value}
    return value


def _text(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False)


def _alone(kind: str, name: str, content: dict[str, Any], *, bare: bool = True) -> Hostile:
    """A case of one file. ``bare``: it takes nothing from Winnow's own."""
    content = {**({} if bare else {"defaults": ["config", "_self_"]}), "model": "nowhere.onnx", **content}
    return Hostile(kind, name, {"bug.yaml": _text(content)})


def _through(entry: object, **more: object) -> str:
    """A file that takes another one in through its defaults."""
    return _text({"defaults": ["config", entry, "_self_"], "model": "nowhere.onnx", **more})


def _in_file(random: Random, path: str, value: Any) -> Hostile:
    mode = random.choice([{}, {}, {"mode": "MULTIRUN"}])
    section = _nested(path, value)
    content = {"hydra": {**mode, **section} if isinstance(section, dict) else section}
    return _alone("the file itself", path, content, bare=random.random() < 0.5)


def _by_package(random: Random, path: str, value: Any) -> Hostile:
    """An option beside the file, that says itself or by whom it is chosen where it belongs."""
    head, _, rest = f"hydra.{path}".rpartition(".")
    package = random.choice(["_global_", "hydra", head])
    inner = _nested(path, value) if package == "hydra" else {rest: value}
    inner = {"hydra": _nested(path, value)} if package == "_global_" else inner
    said = random.random() < 0.5
    files: dict[str, str | bytes] = {
        "experiment/evil.yaml": (f"# @package {package}\n" if said else "") + _text(inner),
        "bug.yaml": _through({"experiment" if said else f"experiment@{package}": "evil"}),
    }
    return Hostile("an option in another package", f"{package} {path}", files)


def _by_group(random: Random, path: str, value: Any) -> Hostile:
    group, _, rest = path.partition(".")
    entry = {f"{random.choice(['override ', ''])}hydra/{group}": "evil"}
    files: dict[str, str | bytes] = {
        f"hydra/{group}/evil.yaml": _text(_nested(rest, value) if rest else value),
        "bug.yaml": _through(entry, hydra={"mode": random.choice(["RUN", "MULTIRUN"])}),
    }
    return Hostile("a group of Hydra's own", path, files)


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()


def _borrowed(random: Random, path: str, value: Any) -> Hostile:
    """An interpolation in place of the value."""
    made = [f"${{oc.create:{_flow(value)}}}", f"${{oc.decode:'{_flow(value)}'}}"]
    link = random.choice(["${recorded.a}", "${recorded}", *made, "${oc.dict.values:recorded}"])
    place = random.choice(["launcher.n_jobs", "launcher.x", "sweeper.params", "sweeper.params.model", path])
    content = {"recorded": {"a": value}, "hydra": {"mode": "MULTIRUN", **_nested(place, link)}}
    return _alone("an interpolation", f"{place} {link[:20]}", content)


def _swept(random: Random, path: str, value: Any) -> Hostile:
    """A parameter of a sweep, which becomes an override of each job."""
    key = random.choice(["+", "++", "", "~"]) + f"hydra.{path}"
    content = {"hydra": {"mode": "MULTIRUN", "sweeper": {"params": {key: _flow(value)}}}}
    return _alone("a parameter of a sweep", key, content)


def _named(random: Random, _path: str, value: Any) -> Hostile:
    value = random.choice([value, f"{MODULE}.run", f"pkg://{MODULE}", [value], f"{MODULE}:run", "../outside/secret"])
    key = random.choice(_NAMES)
    return _alone("a setting that takes a name", key, _nested(key, value), bare=random.random() < 0.7)


_TAGS = (
    f"!!python/object/apply:os.system ['touch {CANARY}']",
    f"!!python/object/new:{MODULE}.Handler []",
    f"!!python/module:{MODULE} ''",
    f"!!python/name:{MODULE}.run ''",
    f"!!python/object/apply:{MODULE}.run []",
    "!!python/object/apply:pathlib.Path [x]",
    f"!{MODULE}.run x",
)


def _tagged(random: Random, _path: str, _value: Any) -> Hostile:
    tag = random.choice(_TAGS)
    files: dict[str, str | bytes] = {"bug.yaml": f"model: nowhere.onnx\nrecorded:\n  x: {tag}\n"}
    if random.random() < 0.5:
        files = {"experiment/evil.yaml": f"x: {tag}\n", "bug.yaml": "defaults: [config, {experiment: evil}, _self_]\n"}
    return Hostile("a tag", tag[:40], files)


def _escaping(random: Random, _path: str, _value: Any) -> Hostile:
    """A configuration from outside the folder."""
    option = random.choice(["../../outside/secret", "/../outside/secret", "../outside/../outside/secret"])
    group = random.choice(["experiment", "override checker", "", "override hydra/launcher"])
    files: dict[str, str | bytes] = {
        "bug.yaml": _through({group: option} if group else option),
        "experiment/x.yaml": "a: 1\n",
    }
    return Hostile("a path in the defaults", f"{group} {option}", files)


def _bombs(random: Random, _path: str, _value: Any) -> Hostile:
    depth = random.choice([60, 1000, 30_000])
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    texts = {
        "aliases": "a0: &a0 [x, x]\n" + levels,
        "merged aliases": "a0: &a0 {x: 1}\n" + levels.replace("[", "{<<: [").replace("]", "]}"),
        "an alias of itself": "recorded: &a {x: *a}\n",
        "depth": "recorded: " + "[" * depth + "]" * depth + "\n",
        "depth of mappings": "recorded: " + "{a: " * depth + "}" * depth + "\n",
        "depth by indentation": "".join(" " * n + "a:\n" for n in range(min(depth, 1000))),
        "many keys": "recorded: {" + ", ".join(f"k{n}: {n}" for n in range(30_000)) + "}\n",
        "a large file": "# " + "x" * (1 << 21) + "\n",
        "a long number": "recorded: {a: " + "9" * 10_000 + "}\n",
        "a long word": "model: " + "x" * 100_000 + "\n",
        "a date that is none": "model: 2026-99-99\n",
        "bytes": "model: !!binary x\n",
        "a set": "recorded: !!set {a, b}\n",
        "a key that is a list": "recorded: {[a]: 1}\n",
        "nothing of Hydra's": "model: nowhere.onnx\nhydra: null\n",
    }
    name, text = random.choice(list(texts.items()))
    files: dict[str, str | bytes] = {"bug.yaml": text}
    if random.random() < 0.3:
        taken = "defaults: [config, {experiment: evil}, _self_]\nmodel: nowhere.onnx\n"
        files = {"experiment/evil.yaml": text, "bug.yaml": taken}
    return Hostile("out of bounds", name, files)


_NOISE = (b"\0", b"{", b"[", b"*", b"&a ", b"!!", b"${", b"\xff", b"\n  ", b"%", b"? ")


def _mutated(random: Random, path: str, value: Any) -> Hostile:
    """A configuration with a few bytes changed."""
    base = _in_file(random, path, value) if random.random() < 0.5 else _in_file(random, "run.dir", "out")
    text = bytearray(str(base.files["bug.yaml"]).encode())
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(text))
        what = random.randrange(3)
        if what == 0:
            text[at] = random.randrange(256)
        elif what == 1:
            del text[at : at + random.randint(1, 5)]
        else:
            text[at:at] = random.choice(_NOISE)
    return Hostile("bytes changed", base.name, {"bug.yaml": bytes(text)})


_WAYS: tuple[Callable[[Random, str, Any], Hostile], ...] = (
    *(_in_file, _in_file, _in_file, _by_package, _by_package, _by_group, _borrowed, _swept, _named, _named, _tagged),
    *(_escaping, _bombs, _bombs, _mutated, _mutated),
)


def configurations(seed: int, count: int, canary: Path) -> list[Hostile]:
    """Return ``count`` hostile configurations, the same ones for the same seed."""
    random, found = Random(seed), []
    made, parts = objects(str(canary)), handlers(str(canary))
    for number in range(count):
        where = random.randrange(3)
        path, value = random.choice(_PLAIN)
        if where == 0:
            path, value = random.choice(_OBJECTS), random.choice(made)
        elif where == 1:
            path, value = random.choice(_HANDLERS), random.choice(parts)
        found.append(_WAYS[number % len(_WAYS)](random, path, value))
    return found


_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 1e308, float("nan"), float("inf"), "", "x", "\0", "\ud800", "../../x", "/etc/passwd"),
    *("~nouser/x", [], {}, [[]], {"a": {"b": []}}, "0-999999999999", "9" * 5000, "${oc.env:HOME}", "${", "\x1b[31m"),
    *("a\nb", ["x"] * 50),
)
_LINES = (b"", b"null", b"[]", b"7", b"{" * 20_000, b"[" * 20_000, b"\xff\xfe", b"NaN", b'"' + b"x" * 10**6)


def damaged(value: Any, random: Random) -> Any:
    """Return plain JSON with one part replaced, removed or doubled."""
    value = deepcopy(value)
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(sorted(value))
        what = random.random()
        if what < 0.12:
            del value[key]
        elif what < 0.2:
            value[f"{key}\0" if random.random() < 0.5 else "x"] = value[key]
        else:
            value[key] = damaged(value[key], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        value[at] = damaged(value[at], random)
        return value
    return random.choice(_VALUES)


def damaged_line(line: str, random: Random) -> bytes:
    """Return a line of JSON with something wrong in it."""
    what = random.random()
    if what < 0.6:
        return json.dumps(damaged(json.loads(line), random)).encode()
    data = bytearray(line.encode())
    if what < 0.75:
        return bytes(data[: random.randrange(len(data))])
    if what < 0.85:
        return random.choice(_LINES)
    for _ in range(random.randint(1, 8)):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)


_PATIENCE = 60  # seconds; none comes near
_LONGEST = 2000  # characters of an error beyond which nobody reads it
_MEMORY_MB = 1000
_REFUSED = frozenset({2, 7})  # a usage error; a sweep of jobs that end with it
OUTSIDE = "outside"
_CONTEXT = {"model": "ab" * 32, "check.argv": "python check.py"}
_PROBLEMS = ("code ran", "opened outside", "traceback", "internal error", "unclear")


class _Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def prepare(root: Path) -> Path:
    """Make what lies outside all cases' folders; return the file that appears where code ran."""
    outside = root / OUTSIDE
    outside.mkdir(parents=True, exist_ok=True)
    (outside / "secret.yaml").write_text("model: secret.onnx\n")
    return outside / CANARY


def attempt(case: Hostile, folder: Path, canary: Path) -> Row:
    """Hand the case to Winnow in a process of its own; say what is wrong with how that ends."""
    folder.mkdir(parents=True)
    touch = f"open({str(canary)!r}, 'w').close()\n"
    (folder / f"{MODULE}.py").write_text(f"{touch}\ndef run(*_, **__):\n    {touch}\n\nclass Handler:\n    pass\n")
    (folder / "evil.pkl").write_bytes(pickle.dumps(_Bomb(str(canary))))
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    row = Row(case, folder)
    row.forked(partial(_handed_over, case, folder), _PATIENCE)
    row.said = (folder / "out.txt").read_text(errors="replace")
    row.problems = _judged(row, canary)
    canary.unlink(missing_ok=True)
    return row


def _handed_over(case: Hostile, folder: Path) -> int:
    """Call Winnow in this process, watched."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))  # every module that a file could name is there
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    said = os.open("out.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    resource.setrlimit(resource.RLIMIT_CPU, (_PATIENCE, _PATIENCE))
    sys.dont_write_bytecode = True  # what Python writes besides is not looked for
    log = os.open("seen.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.addaudithook(lambda event, values: _note(log, event, values, str(folder)))
    return run(["bug.yaml", *case.options], Sweep())


def _note(log: int, event: str, values: tuple[Any, ...], folder: str) -> None:
    what = ""
    if event == "open" and isinstance(values[0], str):
        path = os.path.abspath(values[0])  # noqa: PTH100 - nothing may be opened here
        writes = isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        away = not path.startswith((folder, "/dev/", "/proc/"))
        if (writes and away) or f"/{OUTSIDE}/" in path:
            what = f"opened outside: {path}"
    elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn"):
        if CANARY in repr(values) or MODULE in repr(values):
            what = f"code ran: {event} {values[0]!r}"
    elif (event == "import" and values[0] == MODULE) or event == "pickle.find_class":
        what = f"code ran: {event} {values[0]!r}"
    elif event == "socket.connect":
        what = f"code ran: {event}"
    if what:
        os.write(log, f"{what}\n".encode(errors="replace"))


def _judged(row: Row, canary: Path) -> list[str]:
    """Say what is wrong with how it ended; each problem begins with one of _PROBLEMS."""
    seen = row.path / "seen.txt"
    found = seen.read_text(errors="replace").splitlines() if seen.exists() else []
    if canary.exists():
        found.append(f"code ran: {CANARY} is there")
    if "Traceback (most recent call last)" in row.said:
        found.append(f"traceback: {row.said[-300:]}")
    if row.code not in _REFUSED or "This is a bug" in row.said or "internal error" in row.said:
        found.append(f"internal error: exit code {row.code}: {row.said.strip()[-300:]}")
    lines = row.said.strip().splitlines()
    if row.code == 2 and (len(lines) != 1 or len(lines[0]) > _LONGEST or not lines[0].isprintable()):
        found.append(f"unclear: {len(lines)} lines: {row.said.strip()[:300]!r}")
    if row.mib > _MEMORY_MB or row.seconds > _PATIENCE / 2:
        found.append(f"unclear: {row.mib:.0f} MB, {row.seconds:.0f} s")
    return found


def replays(seed: int, count: int, replay: dict[str, Any]) -> list[Hostile]:
    """Return ``count`` replay files with something wrong in each."""
    random = Random(seed)
    found = []
    for number in range(count):
        content = damaged(replay, random)
        if isinstance(content, dict) and content.get("model") == replay["model"]:
            content["model"] = "nowhere.onnx"
        content = content if random.random() < 0.3 else escaped(content)
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=False)
        found.append(Hostile("a replay", str(number), {"bug.yaml": text}))
    return found


def lists(seed: int, count: int, root: Path) -> list[Row]:
    """Damage journals and the other lists of a run folder, and read them as a run or a sweep that goes on does."""
    random = Random(seed)
    found = []
    for number in range(count):
        folder = root / f"lists{seed}-{number}"
        journal = number % 2 == 0
        row = Row(Hostile("a journal" if journal else "a list of a run's", str(number), {}), folder)
        (_journal if journal else _sweep)(folder)
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".jsonl", ".yaml")]
        for path in files:
            if journal or random.random() < 0.5:
                _damage(path, random)
        started = time.monotonic()
        try:
            (_read_journal if journal else _read_sweep)(folder)
        except UsageError as error:
            row.said = str(error)
            if "\n" in row.said or len(row.said) > _LONGEST:
                row.problems.append(f"unclear: {row.said[:300]}")
        except BaseException as error:  # noqa: BLE001 - it is what we look for
            told = traceback.format_exc().splitlines()[-3:]
            row.problems.append(f"traceback: {type(error).__name__}: {' | '.join(told)[:300]}")
        row.seconds = time.monotonic() - started
        if row.seconds > _PATIENCE / 6:
            row.problems.append(f"unclear: {row.seconds:.0f} s")
        if not (root / OUTSIDE / "secret.yaml").exists():
            row.problems.append("opened outside: a file outside was removed")
            prepare(root)
        found.append(row)
        shutil.rmtree(folder)
    return found


def _damage(path: Path, random: Random) -> None:
    lines = path.read_text().splitlines()
    changed: list[bytes] = [line.encode() for line in lines]
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(lines))
        whole = path.suffix == ".yaml"
        changed[at] = bytes(random.randrange(256) for _ in range(20)) if whole else damaged_line(lines[at], random)
    path.write_bytes(b"\n".join(changed) + random.choice([b"\n", b""]))


def _journal(folder: Path) -> None:
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl", _CONTEXT)
    raised = Raised(("ValueError at check.py:3",), "check")
    for number in range(6):
        failed = Signature("check", "exit 1", "detail", raised if number % 2 else None)
        metrics = {"error": 1.0, "left_out": ["y"], "fused": [{"nodes": ["a"]}], "caught": None}
        verdict = Verdict(Outcome.FAIL, failed, "why", metrics, 0.5, "checks/1/check.log", 1, 20.0)
        journal.put(Trial.of(range(number + 1)), 0, verdict, "search", "prefix", number)


def _read_journal(folder: Path) -> None:
    for _ in range(2):
        journal = Journal(folder / "journal.jsonl", _CONTEXT)
        total = 0.0
        for entry in journal.entries():
            signature = entry.verdict.signature
            told = [entry.verdict.said, entry.verdict.log or "", f"{entry.verdict.seconds:.3f}", entry.trial.ranges]
            if signature:
                told += [signature.name, signature.family, str(signature.about_values), str(signature.raised)]
            total += entry.verdict.seconds + entry.verdict.peak_rss_mb + len(entry.trial) + len("".join(told))
            if caught := entry.verdict.metrics.get("caught"):
                Raised.from_json(caught)
            frozenset(entry.verdict.metrics.get("left_out") or ())
            [set(layer["nodes"]) for layer in entry.verdict.metrics.get("fused") or ()]
        journal.put(Trial.of([7, 8]), 0, Verdict(Outcome.PASS), "search", "x", 9)
        assert journal.get(Trial.of([7, 8])) is not None


def _sweep(folder: Path) -> None:
    run_folder = folder / "0"
    (run_folder / ".hydra").mkdir(parents=True)
    (run_folder / "artifacts" / "good").mkdir(parents=True)
    (run_folder / ".hydra" / "hydra.yaml").write_text("hydra:\n  job:\n    num: 0\n")
    (run_folder / ".hydra" / "overrides.yaml").write_text("- model=a.onnx\n- x=1\n")
    result = {
        "status": "found", "exit_code": 0, "strategy": "reduce", "message": "m", "nodes": {"before": 5, "after": 1},
        "culprits": ["a"], "checks": {"search": 3}, "seconds": {"total": 1.5},
    }  # fmt: skip
    (run_folder / "result.json").write_text(json.dumps(result))
    ended = {"exit_code": 0, "overrides": ["model=a.onnx"], "settings": "ab", "inputs": {"a": "b"}}
    (run_folder / "ended.json").write_text(json.dumps(ended))
    (run_folder / "placed.json").write_text(json.dumps([str(folder / "model.onnx")]))
    marked = {"winnow": 1, "running": False, "wrote": ["result.json", "artifacts"]}
    (run_folder / marker.NAME).write_text(json.dumps(marked))
    best = {"iteration": 1, "outcome": "pass", "elements": 3, "model": "good/a.onnx", "failure": ""}
    (run_folder / "artifacts" / "index.jsonl").write_text(f"{json.dumps(best)}\n" * 2)
    queued = {"job": 0, "state": "queued", "overrides": []}
    died = {"job": 0, "state": "died", "signal": "SIGKILL", "message": "x"}
    (folder / "jobs.jsonl").write_text(f"{json.dumps(queued)}\n{json.dumps(died)}\n")


def _read_sweep(folder: Path) -> None:
    found = rows_of(folder, [])
    markdown(found)
    markdown(rows_of(folder, [("model=a.onnx",), ("model=b.onnx",)]))
    [row.ended_well for row in found]
    run_folder = folder / "0"
    job_notes.overrides_of(run_folder)
    job_notes.number_of(run_folder)
    job_notes.confirm(run_folder, ["x"])
    marker.own(run_folder)
    Artifacts(ArtifactSettings(), run_folder, folder)
    Placement(folder / "model.onnx", run_folder, keep=False)


def genuine_replay(root: Path) -> dict[str, Any]:
    """Return the content of a replay file that a run wrote."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = ["model=nowhere.onnx", "checker=command", "checker.command=[x]"]
        settings = to_settings(compose("config", overrides=overrides))
    recorded = {"context": {"model": "ab", "target": '{"name": "onnxruntime"}'}, "versions": {"onnx": "1.20"}}
    write_replay(root / "replay.yaml", *configuration(settings, root), recorded=recorded)
    content = yaml.safe_load((root / "replay.yaml").read_text())
    assert isinstance(content, dict)
    return content


def tried(seed: int, counts: tuple[int, int, int], root: Path) -> list[Row]:
    """Try all cases of a seed: configurations, replays, lists."""
    canary = prepare(root)
    found = []
    for number, case in enumerate(
        [*configurations(seed, counts[0], canary), *replays(seed, counts[1], genuine_replay(root))]
    ):
        folder = root / f"case{seed}-{number}"
        found.append(attempt(case, folder, canary))
        shutil.rmtree(folder, ignore_errors=True)
    return found + lists(seed, counts[2], root)


def _having(problem: str, group: list[Row]) -> int:
    return sum(any(one.startswith(problem) for one in row.problems) for row in group)


COLUMNS: Columns = {
    "tried": len,
    **{problem: partial(_having, problem) for problem in _PROBLEMS},
    "exit codes": codes,
    "slowest (s)": slowest,
    "peak MB": peak,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--configurations", type=int, default=400)
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--show", action="store_true", help="print what each case ended with")
    given = parser.parse_args()
    logging.getLogger("runner").setLevel(logging.CRITICAL)
    wrong = 0
    for seed in given.seed or [1, 2]:
        with tempfile.TemporaryDirectory() as scratch:
            found = tried(seed, (given.configurations, given.replays, given.lists), Path(scratch).resolve())
        for row in found if given.show else ():
            print(f"{row.file.kind}, {row.file.name}: {row.code} {row.said.strip()[:300]}")
        print()
        wrong += table(found, COLUMNS, f"seed {seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
