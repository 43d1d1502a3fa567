"""repro.py that stands alone: it holds the model as ONNX text, and weights and inputs as lines that make them.

So it can be pasted into a report whole. It is for what a reader takes in: a small model whose tensors have recipes, and
no more lines than a few pages. Of whatever else there is `NotAlone` says why, and the script reads the files beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

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
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings

Printed = Callable[[ModelProto], ModelText]
"""Returns a model as ONNX text that says all of it. Raises NotAlone where none does."""

MOST_LINES, MOST_COLUMNS, MOST_CHARACTERS = 200, 100, 200


class NotAlone(Exception):  # noqa: N818 - it is no error
    """The script cannot stand alone; why, in words."""


def source(
    folder: Path,
    given: Mapping[str, Any],
    settings: Settings,
    ran: Mapping[str, BackendSettings],
    sources: Sequence[str],
    printed: Printed,
) -> str:
    """Return the source of the script. Raises NotAlone, and OSError.

    ``folder``: where the model and its test data sets lie. ``given``, ``sources``: values and templates of the script.
    ``ran``: what it runs by itself, by its part.
    """
    if why := next(_obstacles(folder, given, settings, ran), ""):
        raise NotAlone(why)
    (data,) = given["data"]
    model = parse(folder / given["model"])
    weights = {tensor.name: _made(tensor) for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    text, needs, values = printed(model), list[str](), dict(given)
    if isinstance(settings.checker, CommandChecker):
        inputs = _recorded(folder / data, "input") if given.get("inputs") else None
        if inputs and {"file", "allow_pickle"} & inputs.keys():
            raise NotAlone("an input with the name of an argument of numpy.savez")
        held = _write(text, weights, inputs)
        # the parser of an older one takes no name in quotes, such as a path of scopes
        release = "" if all(map(str.isidentifier, _names(model))) else " >= 1.18"
        needs = [f"onnx{release} (which needs numpy)", "the command with what that needs"]
        values["files"] = _files(given)
    else:
        good = _recorded(folder / data, "output") if given["recorded"] else None
        held = _load(text, weights, _recorded(folder / data, "input"), good)
    return _glance(compose([held, *sources], values, needs))


def _files(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the files whose absence neither the system nor the interpreter of a script tells of."""
    program, *words = given["command"]
    script = words[:1] if Path(program).name.startswith("python") else []
    told = {Path(given["cwd"]) / Path(word).expanduser() for word in (program, *script)}
    return {path: digest for path, digest in given["files"].items() if Path(path) not in told}


def _obstacles(
    folder: Path, given: Mapping[str, Any], settings: Settings, ran: Mapping[str, BackendSettings]
) -> Iterator[str]:
    """Yield why a script cannot stand alone, as far as that is seen before values are looked at."""
    path, runtimes = folder / given["model"], [*ran.values()]
    if not ran and not isinstance(settings.checker, CommandChecker):
        yield "a check that is no command"
    elif given.get("reads_more"):
        yield "a command that reads more than a model and its inputs"
    elif not all(map(_is_plain, runtimes)):
        yield "a runtime that needs more than a model"
    elif len(given["data"]) != 1 or given["containers"] or given["narrow"]:
        yield "several samples, or inputs that numpy has no arrays for"
    elif path.stat().st_size > LARGE_FILE or locations(parse(path)):
        yield "a large model"


def _is_plain(settings: BackendSettings) -> bool:
    if isinstance(settings, OnnxRuntimeBackend):
        return not (settings.custom_ops or settings.provider_libraries or backends.rounds(settings))
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


def _load(
    printed: ModelText, weights: Mapping[str, str], inputs: Mapping[str, str], good: Mapping[str, str] | None
) -> str:
    """Return the source of a function that makes the model, its inputs, and the good outputs where they are asked."""
    text = ["def load():", '    """Make the model, and what it is fed."""', *_model(printed, weights)]
    if good is None:
        return "\n".join([*text, *_dictionary("return [(model, ", inputs, ", None)]"), ""])
    text += _dictionary("inputs = ", inputs, "")
    return "\n".join([*text, *_dictionary("return [(model, inputs, ", good, ")]"), ""])


def _write(printed: ModelText, weights: Mapping[str, str], inputs: Mapping[str, str] | None) -> str:
    """Return the source of a function that writes the model, and its inputs if there are any wanted.

    It imports what it needs itself: the process that calls it is the one that answers.
    """
    modules = "onnx, numpy as np" if weights or inputs is not None else "onnx"
    text = ["def write(folder):", '    """Write the model, and what it is fed."""', f"    import {modules}"]
    text += [*_model(printed, weights), '    onnx.save(model, folder + "/reduced.onnx")']
    known = ['"model": folder + "/reduced.onnx"']
    if inputs is not None:
        held = {name: made for name, made in inputs.items() if fits_npz(name, inputs)}
        text += _dictionary('np.savez(folder + "/inputs.npz", **', held, ")")
        known += ['"inputs": folder + "/inputs.npz"']
    return "\n".join([*text, f"    return {{{', '.join(known)}}}", ""])


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
