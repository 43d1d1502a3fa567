"""Configurations that try to run code, to write elsewhere or to break the reader; and damaged lists of run folders.

Each configuration is a set of files in one folder, of which ``bug.yaml`` is handed to Winnow. Where one runs code, the
file `CANARY` appears.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

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
    *(
        "verbosity",
        "checker.metric",
        "checker.rtol",
        "checker.regex",
        "target.session_options",
        "target.provider_options",
    ),
    *("inputs.shapes", "inputs.ranges", "recorded", "log.format", "artifacts.paths", "result.external_data", "cwd"),
)


def _nested(path: str, value: Any) -> Any:
    for part in reversed(path.split(".")):
        value = [value] if part == "0" else {part: value}
    return value


def _text(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=False)


def _primary(content: dict[str, Any], *, bare: bool) -> str:
    return _text({**({} if bare else {"defaults": ["config", "_self_"]}), "model": "nowhere.onnx", **content})


def _in_file(random: Random, path: str, value: Any) -> Hostile:
    mode = random.choice([{}, {}, {"mode": "MULTIRUN"}])
    section = _nested(path, value)
    content = {"hydra": {**mode, **section} if isinstance(section, dict) else section}
    return Hostile("the file itself", path, {"bug.yaml": _primary(content, bare=random.random() < 0.5)})


def _by_package(random: Random, path: str, value: Any) -> Hostile:
    """An option beside the file, that says itself or by whom it is chosen where it belongs."""
    head, _, rest = f"hydra.{path}".rpartition(".")
    package = random.choice(["_global_", "hydra", head])
    inner = _nested(path, value) if package == "hydra" else {rest: value}
    inner = {"hydra": _nested(path, value)} if package == "_global_" else inner
    said = random.random() < 0.5
    files = {
        "experiment/evil.yaml": (f"# @package {package}\n" if said else "") + _text(inner),
        "bug.yaml": _text(
            {
                "defaults": ["config", {"experiment" if said else f"experiment@{package}": "evil"}, "_self_"],
                "model": "nowhere.onnx",
            }
        ),
    }
    return Hostile("an option in another package", f"{package} {path}", files)


def _by_group(random: Random, path: str, value: Any) -> Hostile:
    group, _, rest = path.partition(".")
    content = _nested(rest, value) if rest else value
    files = {
        f"hydra/{group}/evil.yaml": _text(content),
        "bug.yaml": _text(
            {
                "defaults": ["config", {f"{random.choice(['override ', ''])}hydra/{group}": "evil"}, "_self_"],
                "model": "nowhere.onnx",
                "hydra": {"mode": random.choice(["RUN", "MULTIRUN"])},
            }
        ),
    }
    return Hostile("a group of Hydra's own", path, files)


def _borrowed(random: Random, path: str, value: Any) -> Hostile:
    """An interpolation in place of the value."""
    flow = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    link = random.choice(
        [
            "${recorded.a}",
            "${recorded}",
            f"${{oc.create:{flow}}}",
            f"${{oc.decode:'{flow}'}}",
            "${oc.dict.values:recorded}",
        ]
    )
    place = random.choice(["launcher.n_jobs", "launcher.x", "sweeper.params", "sweeper.params.model", path])
    content = {"recorded": {"a": value}, "hydra": {"mode": "MULTIRUN", **_nested(place, link)}}
    return Hostile("an interpolation", f"{place} {link[:20]}", {"bug.yaml": _primary(content, bare=True)})


def _swept(random: Random, path: str, value: Any) -> Hostile:
    """A parameter of a sweep, which becomes an override of each job."""
    flow = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    key = random.choice(["+", "++", "", "~"]) + f"hydra.{path}"
    content = {"hydra": {"mode": "MULTIRUN", "sweeper": {"params": {key: flow}}}}
    return Hostile("a parameter of a sweep", key, {"bug.yaml": _primary(content, bare=True)})


def _named(random: Random, path: str, value: Any) -> Hostile:
    value = random.choice([value, f"{MODULE}.run", f"pkg://{MODULE}", [value], f"{MODULE}:run", "../outside/secret"])
    del path
    key = random.choice(_NAMES)
    return Hostile(
        "a setting that takes a name", key, {"bug.yaml": _primary(_nested(key, value), bare=random.random() < 0.7)}
    )


def _tagged(random: Random, path: str, value: Any) -> Hostile:
    tag = random.choice(
        [
            f"!!python/object/apply:os.system ['touch {CANARY}']",
            f"!!python/object/new:{MODULE}.Handler []",
            f"!!python/module:{MODULE} ''",
            f"!!python/name:{MODULE}.run ''",
            f"!!python/object/apply:{MODULE}.run []",
            "!!python/object/apply:pathlib.Path [x]",
            f"!{MODULE}.run x",
        ]
    )
    del path, value
    files: dict[str, str | bytes] = {"bug.yaml": f"model: nowhere.onnx\nrecorded:\n  x: {tag}\n"}
    if random.random() < 0.5:
        files = {"experiment/evil.yaml": f"x: {tag}\n", "bug.yaml": "defaults: [config, {experiment: evil}, _self_]\n"}
    return Hostile("a tag", tag[:40], files)


def _escaping(random: Random, path: str, value: Any) -> Hostile:
    """A configuration from outside the folder."""
    del path, value
    option = random.choice(["../../outside/secret", "/../outside/secret", "../outside/../outside/secret"])
    group = random.choice(["experiment", "override checker", "", "override hydra/launcher"])
    entry = {group: option} if group else option
    content = {"defaults": ["config", entry, "_self_"], "model": "nowhere.onnx"}
    return Hostile(
        "a path in the defaults", f"{group} {option}", {"bug.yaml": _text(content), "experiment/x.yaml": "a: 1\n"}
    )


def _bombs(random: Random, path: str, value: Any) -> Hostile:
    del path, value
    depth = random.choice([60, 1000, 30_000])
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    name, text = random.choice(
        [
            ("aliases", "a0: &a0 [x, x]\n" + levels),
            ("merged aliases", "a0: &a0 {x: 1}\n" + levels.replace("[", "{<<: [").replace("]", "]}")),
            ("an alias of itself", "recorded: &a {x: *a}\n"),
            ("depth", "recorded: " + "[" * depth + "]" * depth + "\n"),
            ("depth of mappings", "recorded: " + "{a: " * depth + "}" * depth + "\n"),
            ("depth by indentation", "".join(" " * n + "a:\n" for n in range(min(depth, 1000)))),
            ("many keys", "recorded: {" + ", ".join(f"k{n}: {n}" for n in range(30_000)) + "}\n"),
            ("a large file", "# " + "x" * (1 << 21) + "\n"),
            ("a long number", "recorded: {a: " + "9" * 10_000 + "}\n"),
            ("a long word", "model: " + "x" * 100_000 + "\n"),
            ("a date that is none", "model: 2026-99-99\n"),
            ("bytes", "model: !!binary x\n"),
            ("a set", "recorded: !!set {a, b}\n"),
            ("a key that is a list", "recorded: {[a]: 1}\n"),
            ("nothing of Hydra's", "model: nowhere.onnx\nhydra: null\n"),
        ]
    )
    files: dict[str, str | bytes] = {"bug.yaml": text}
    if random.random() < 0.3:
        files = {
            "experiment/evil.yaml": text,
            "bug.yaml": "defaults: [config, {experiment: evil}, _self_]\nmodel: nowhere.onnx\n",
        }
    return Hostile("out of bounds", name, files)


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
            text[at:at] = random.choice([b"\0", b"{", b"[", b"*", b"&a ", b"!!", b"${", b"\xff", b"\n  ", b"%", b"? "])
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


HOSTILE_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        10**30,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\0",
        "\ud800",
        "../../x",
        "/etc/passwd",
        "~nouser/x",
    ),
    *(
        [],
        {},
        [[]],
        {"a": {"b": []}},
        "0-999999999999",
        "9" * 5000,
        "${oc.env:HOME}",
        "${",
        "\x1b[31m",
        "a\nb",
        ["x"] * 50,
    ),
)


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
    return random.choice(HOSTILE_VALUES)


def damaged_line(line: str, random: Random) -> bytes:
    """Return a line of JSON with something wrong in it."""
    what = random.random()
    if what < 0.6:
        return json.dumps(damaged(json.loads(line), random)).encode()
    data = bytearray(line.encode())
    if what < 0.75:
        return bytes(data[: random.randrange(len(data))])
    if what < 0.85:
        return random.choice(
            [b"", b"null", b"[]", b"7", b"{" * 20_000, b"[" * 20_000, b"\xff\xfe", b"NaN", b'"' + b"x" * 10**6]
        )
    for _ in range(random.randint(1, 8)):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)
