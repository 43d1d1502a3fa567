"""repro.py that stands alone: it holds the model as ONNX text, and weights and inputs as lines that make them.

So it can be pasted into a report whole. It is for what a reader takes in: a small model whose tensors have recipes, run
by one runtime as it comes, judged by a rule of a few lines. Whatever else there is, `NotAlone` says why it is not for
that, and the script with files beside it is written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from runner.checkers.command.exit_rules import REFUSALS
from runner.model.files.external_data import locations
from runner.model.files.onnx_text import ModelText
from runner.model.files.parse_without_weights import LARGE_FILE, parse
from runner.model.graph.scopes import all_nodes
from runner.model.values import tensor_file
from runner.model.values.recipes import Kind, Recipe, recognize
from runner.model.values.write_npz_and_data_sets import fits_npz
from runner.report.repro import backends
from runner.report.repro.compose import compose
from runner.report.repro.literal import inline
from runner.schema.backend import BackendSettings, OnnxReferenceBackend, OnnxRuntimeBackend
from runner.schema.checker import Metric
from runner.schema.root import Settings

Printed = Callable[[ModelProto], ModelText]
"""Returns a model as ONNX text that says all of it. Raises NotAlone where none does."""

MOST_LINES, MOST_COLUMNS, MOST_CHARACTERS = 200, 100, 200
_JUDGES = ("command", "finite", "runs", "compare")
_VERSIONS = ("python", "numpy", "onnx", "onnxruntime")
_TEMPLATES = Path(__file__).with_name("templates") / "stand_alone"


class NotAlone(Exception):  # noqa: N818 - it is no error
    """The script cannot stand alone; why, in words."""


def source(folder: Path, given: Mapping[str, Any], settings: Settings, judge: str, cwd: Path, printed: Printed) -> str:
    """Return the source of the script. Raises NotAlone, and OSError.

    ``folder``: where the model and its test data sets lie. ``given``: what the other script is made of.
    """
    if why := next(_obstacles(folder, given, settings, judge), ""):
        raise NotAlone(why)
    command, ran = judge == "command", _ran(given, settings)
    (data,) = given["data"]
    model = parse(folder / given["model"])
    weights = {tensor.name: _made(tensor) for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    text = printed(model)
    if command:
        inputs = _recorded(folder / data, "input") if given.get("inputs") else None
        if inputs and {"file", "allow_pickle"} & inputs.keys():
            raise NotAlone("an input with the name of an argument of numpy.savez")
        sources = [_write(text, weights, inputs), _template("command")]
    else:
        stems = ["input", *(["output"] if judge == "compare" and len(ran) == 1 else [])]
        made = [_recorded(folder / data, stem) for stem in stems]
        sources = [_load(text, weights, made), *(_run(*one, cwd) for one in ran.items())]
        sources += [_template(judge), _template("child_process")]
    kept = {name: given["versions"][name] for name in _VERSIONS if name in given["versions"]}
    cpu = ["CPUExecutionProvider"]
    values: dict[str, Any] = {
        **given,
        "detail": given["detail"][: 180 if given["error"] else 60],
        "then": ", ".join(f"{name} {version}" for name, version in kept.items()),
        "whole": any(value.type.tensor_type.elem_type in tensor_file.INTEGERS for value in model.graph.output),
        "ends": given["watched"] and not command,
        "accelerated": any(getattr(one, "providers", cpu) != cpu for one in ran.values()),
    }
    if command:
        values |= _rules(given)
    # the parser of an older one takes no name in quotes, such as a path of scopes
    release = "" if all(map(str.isidentifier, _names(model))) else " >= 1.18"
    needs = [f"onnx{release} (which needs numpy)", "the command with what that needs"] if command else []
    return _glance(compose([*sources, _template("program")], values, needs, alone=True))


def _ran(given: Mapping[str, Any], settings: Settings) -> dict[str, BackendSettings]:
    """Return what a script runs by itself, by its part."""
    return {"target": settings.target, **({"reference": settings.reference} if given["reference"] else {})}


def _rules(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return which lines a command's exit status and output are judged by."""
    codes, regex, kind = bool(given["fail_codes"]), bool(given["fail_regex"]), given["kind"]
    exits, dies = not (codes or regex), kind.startswith("death")
    # of which exit codes it is of account whether the command ran at all: another one is another failure anyhow
    looked = (
        {int(kind[5:])} & {*REFUSALS} if exits and kind.startswith("exit ") else {*REFUSALS} if not exits else set()
    )
    looked -= {*given["listed"]}
    return {
        "files": _files(given),
        "no_answer": sorted({*given["invalid_codes"], *given["different_codes"]}),
        "unlisted": looked - {64},
        "of_module": 1 in looked,
        "of_options": 2 in looked,
        "of_tests": looked & {4, 5},
        "dies": dies,
        "both_dies": dies and regex,
        "only_dies": dies and not regex,
        "both": codes and regex,
        "only_regex": regex and not codes,
        "exits": exits,
    }


def _files(given: Mapping[str, Any]) -> list[str]:
    """Return the files whose absence neither the system nor the interpreter of a script tells of."""
    program, *words = given["command"]
    script = words[:1] if Path(program).name.startswith("python") else []
    told = {Path(given["cwd"]) / Path(word).expanduser() for word in (program, *script)}
    return [path for path in given["files"] if Path(path) not in told]


def _template(name: str) -> str:
    return (_TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")


def _run(name: str, settings: BackendSettings, cwd: Path) -> str:
    """Return the source of a function of that name which runs a model."""
    text = _template(settings.name).replace("def run(", f"def {name}(").replace("ROLE", name)
    if isinstance(settings, OnnxRuntimeBackend):
        text = text.replace("OPTIONS", "\n    ".join(backends.session_options(settings, cwd)))
        text = text.replace("PROVIDERS", inline(backends.providers(settings)))
    return text


def _obstacles(folder: Path, given: Mapping[str, Any], settings: Settings, judge: str) -> Iterator[str]:
    """Yield why a script cannot stand alone, as far as that is seen before values are looked at."""
    path = folder / given["model"]
    if judge not in _JUDGES:
        yield f"a check of the kind {judge}"
    elif judge == "command" and (given["beside"] or any("{{" in word for word in given["command"])):
        yield "a command that reads more than a model and its inputs"
    elif judge != "command" and not all(map(_is_plain, _ran(given, settings).values())):
        yield "a runtime with more settings than a few lines say"
    elif judge == "compare" and not _by_largest(given):
        yield "a comparison by another rule than the largest error"
    elif settings.checker.memory_mb or given["kind"] == "memory":
        yield "memory is watched"
    elif len(given["data"]) != 1 or given["containers"] or given["narrow"]:
        yield "several samples, or inputs that numpy has no arrays for"
    elif path.stat().st_size > LARGE_FILE or locations(parse(path)):
        yield "a large model"


def _by_largest(given: Mapping[str, Any]) -> bool:
    """Whether two outputs are compared as they are by default: by the largest error as a part of the scale."""
    metrics = [metric.value for metric in Metric if given.get(f"by_{metric.value}")]
    return (metrics, given["statistic"], given["nan"], given["inf"]) == (["scale"], "max", "compare", "compare")


def _is_plain(settings: BackendSettings) -> bool:
    if isinstance(settings, OnnxRuntimeBackend):
        more = settings.session_options or settings.custom_ops or settings.provider_libraries
        return not (more or settings.disabled_optimizers or backends.rounds(settings))
    return isinstance(settings, OnnxReferenceBackend)


def _recorded(folder: Path, stem: str) -> dict[str, str]:
    """Return the sources of a sample's tensors by name."""
    tensors = [tensor_file.load(path) for path in sorted(folder.glob(f"{stem}_*.pb"))]
    return {tensor.name: _made(tensor) for tensor in tensors}


def _made(tensor: TensorProto) -> str:
    """Return the source that makes exactly this tensor's array. Raises NotAlone."""
    if tensor.data_type not in tensor_file.NUMPY or tensor.data_location == TensorProto.EXTERNAL:
        raise NotAlone(f"{tensor.name}: numpy has no such type")
    array = onnx.numpy_helper.to_array(tensor)
    recipe = recognize(array)
    if recipe is None or any(map(np.isnan, recipe.values)):  # a NaN may be one of many
        raise NotAlone(f"{tensor.name}: recorded values, which nothing short makes")
    return _expression(recipe, [*array.shape], array.dtype.name)


def _expression(recipe: Recipe, shape: list[int], dtype: str) -> str:
    if recipe.kind is Kind.SPLAT:
        return f"np.full({shape}, {inline(recipe.values[0])}, {dtype!r})"
    if recipe.kind is Kind.LITERAL:
        return f"np.array([{', '.join(map(inline, recipe.values))}], {dtype!r}).reshape({shape})"
    drawn = f"np.random.default_rng({recipe.seed})"
    if dtype.startswith("float"):
        return f"({drawn}.standard_normal({shape}) * {recipe.scale!r}).astype({dtype!r})"
    return f"{drawn}.integers(0, {int(recipe.scale)}, {shape}).astype({dtype!r})"


def _load(printed: ModelText, weights: Mapping[str, str], values: Sequence[Mapping[str, str]]) -> str:
    """Return the source of a function that makes the model, its inputs, and the good outputs where they are known."""
    text = ["def load():", '    """Make the model, and what it is fed."""', *_model(printed, weights)]
    *first, last = values
    text += [line for one in first for line in _dictionary("inputs = ", one, "")]
    return "\n".join([*text, *_dictionary("return model, inputs, " if first else "return model, ", last, ""), ""])


def _write(printed: ModelText, weights: Mapping[str, str], inputs: Mapping[str, str] | None) -> str:
    """Return the source of a function that writes the model, and its inputs if there are any wanted.

    It imports what it needs itself: the process that calls it is the one that answers.
    """
    names = "path" if inputs is None else "path, npz"
    modules = "onnx, numpy as np" if weights or inputs is not None else "onnx"
    text = [f"def write({names}):", '    """Write the model, and what it is fed."""', f"    import {modules}"]
    text += [*_model(printed, weights), "    onnx.save(model, path)"]
    if inputs is not None:
        held = {name: made for name, made in inputs.items() if fits_npz(name, inputs)}
        text += _dictionary("np.savez(npz, **", held, ")")
    return "\n".join([*text, ""])


def _model(printed: ModelText, weights: Mapping[str, str]) -> list[str]:
    """Return the lines that make the model."""
    strings = [f"        {inline(line)}," for line in printed.lines]
    signs = "\n    ".join(f".replace({inline(sign)}, {inline(prefix)})" for sign, prefix in printed.prefixes.items())
    text = ['    model = onnx.parser.parse_model("\\n".join([', *strings, *f"    ]){signs})".splitlines()]
    if weights:
        text += _dictionary("for name, value in ", weights, ".items():")
        text += ["        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))"]
    return text


def _dictionary(before: str, sources: Mapping[str, str], after: str) -> list[str]:
    """Return the lines of a statement with a dictionary in it.

    A source has spaces between its elements only, and none in a text.
    """
    whole = f"    {before}{{{', '.join(f'{inline(name)}: {made}' for name, made in sources.items())}}}{after}"
    if len(whole) <= MOST_COLUMNS:
        return [whole]
    lines = [f"    {before}{{", " " * 7]
    for name, made in sources.items():
        for word in (f"{inline(name)}:", *f"{made},".split(" ")):
            if len(lines[-1]) + len(word) < MOST_COLUMNS or not lines[-1].strip():
                lines[-1] += f" {word}"
            else:
                lines.append(" " * 8 + word)
    return [*lines, f"    }}{after}"]


def _names(model: ModelProto) -> Iterator[str]:
    nodes = list(all_nodes(list(model.graph.node)))
    yield from (name for node in nodes for name in (*node.input, *node.output) if name)
    yield from (one.name for one in (*model.graph.input, *model.graph.output))


def _glance(source: str) -> str:
    """Return a source that a reader takes in. Raises NotAlone for another."""
    lines = source.splitlines()
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    longest = max((len(text) for text in texts if isinstance(text, (str, bytes))), default=0)
    found = len(lines), max(map(len, lines)), longest
    if any(one > most for one, most in zip(found, (MOST_LINES, MOST_COLUMNS, MOST_CHARACTERS), strict=True)):
        raise NotAlone("{} lines of {} columns, and a literal of {} characters".format(*found))
    return source
