"""repro.py: one file that shows the failure of the reduced model, and needs what its first lines say.

It is made of templates (see `fill_templates`): what this failure needs, no more, so that a maintainer can read it.
What was found goes into it as literals of plain values, so no name of a node, a tensor or a file can become code.
It holds the model where a reader takes this in (see `stand_alone`), else it reads the files of the bundle beside it.
"""

from __future__ import annotations

import ast
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from runner.checkers.command_template import Template, digest
from runner.checkers.exit_and_output import NO_SCRIPT, REFUSALS
from runner.checkers.failure_text import Threshold
from runner.checkers.tolerances import rules_of
from runner.model.files.onnx_text import ModelText
from runner.model.files.parse_without_weights import LARGE_FILE, locations, parse
from runner.model.graph.scopes import names_of
from runner.model.values import recorded
from runner.model.values.recipes import Kind, Recipe, recognize
from runner.model.values.recorded import fits_npz
from runner.report import bundled_check_files
from runner.report.failure_section import relevant
from runner.report.repro import fill_templates
from runner.report.repro.fill_templates import RUNTIMES, compose, inline, rounds, template
from runner.report.result_parts import CheckReliability, Count
from runner.report.summary import Summary
from runner.schema import checker as checkers
from runner.schema.backend import BackendSettings, OnnxReferenceBackend, OnnxRuntimeBackend, TensorRtBackend
from runner.schema.root import Settings
from runner.verdict import Sample

# What a script holds of the checker: which template shows the failure, and the values and source that this needs.


def template_of(settings: Settings, stage: str, *, runs: bool) -> str:
    """Return the template that shows a failure. ``runs``: the model does, which any runtime may refuse."""
    checker = settings.checker
    if isinstance(checker, (checkers.CommandChecker, checkers.PythonChecker, checkers.InteractiveChecker)):
        return checker.name
    if checker.runs_own_code or settings.target.name not in RUNTIMES:  # of an installed package: not told here
        return "interactive"
    of_a_build = stage in ("load", "build") and isinstance(settings.target, TensorRtBackend)
    if of_a_build or (isinstance(checker, checkers.BuildsChecker) and runs):
        return "builds"
    if not runs:
        return "runs"
    finite = stage != "compare" and isinstance(checker, (checkers.FiniteChecker, checkers.AutoChecker))
    return "finite" if finite else "compare"


def values_of(
    checker: checkers.CheckerSettings, cwd: Path, evidence: Mapping[str, Any], kind: str = ""
) -> dict[str, Any]:
    """Return the values by which it judges: its settings, and what these say in the end.

    ``cwd``: the user's. ``kind``: the failure's.
    """
    given = dict(vars(checker))
    if isinstance(checker, checkers.CommandChecker):
        template = Template(checker.command, cwd, checker.env)
        ours = {cwd / Path(path).expanduser() for path in (checker.place, checker.iteration_info) if path}
        asked, more = template.mentions & {"inputs", "references"}, template.mentions - {"model", "dir"}
        given |= {**dict.fromkeys(asked, True), "samples": bool(asked), "reads_more": bool(ours or more - {"inputs"})}
        given |= {"command": list(template.words), "cwd": str(cwd), "placed": bool(ours)}
        given |= {"env": sorted(checker.env)}  # values may be secret: whoever runs the script sets them
        given |= {"files": _digests(path for path in template.files().values() if path not in ours)}
        silent = {*checker.invalid_codes, *checker.different_codes}
        given |= {"no_answer": sorted(silent), "listed": sorted({*checker.pass_codes, *checker.fail_codes} | silent)}
        codes, regex = bool(checker.fail_codes), bool(checker.fail_regex)
        deaths = codes or regex or not kind.startswith("exit ")
        given |= {"deaths": deaths, "no_regex_deaths": deaths and not regex}
        given |= {"exits": not (codes or regex), "only_regex": regex and not codes, "both": codes and regex}
        return given | {"refusals": _refusals(kind, given), "no_script": NO_SCRIPT.pattern}
    if isinstance(checker, checkers.PythonChecker):
        allowed = Threshold(checker).allowed
        given |= {"threshold": allowed is not None, "allowed": allowed, "drop": checker.max_drop is not None}
        return given | {"files": _digests([cwd / Path(checker.file or "").expanduser()]), "cwd": str(cwd)}
    rules = rules_of(checker)
    finite = checker if isinstance(checker, checkers.FiniteChecker) else checkers.FiniteChecker()
    looked = [name for name in ("nan", "inf") if getattr(finite, name).value == "fail"]
    given = {**vars(rules.settings), **given, "rtol": rules.rtol, "atol": rules.atol, "looked_for": looked}
    by_share = rules.settings.fraction if rules.metrics == (checkers.Metric.fraction,) else 0.0
    quantile = rules.settings.statistic is checkers.Statistic.quantile
    taken = bool({checkers.Metric.scale, checkers.Metric.elementwise} & {*rules.metrics})
    given |= {"unlike": max(by_share, rules.settings.unequal)}
    given |= {"named": taken and not quantile, "quantiles": taken and quantile}
    measured = isinstance(checker, checkers.CompareChecker) and checker.tolerance is checkers.Tolerance.auto
    measured = measured and None not in (evidence.get("limit"), evidence.get("output")) and not evidence.get("exact")
    given |= {"counted": evidence.get("output"), "limit": evidence.get("limit"), "measured": measured}
    given |= {f"by_{metric.value}": True for metric in rules.metrics}
    given |= {f"{name}_{given[name].value}": True for name in ("nan", "inf")}
    return given | ({"outputs": [evidence["output"]]} if measured else {})


def runs_beside(settings: Settings) -> bool:
    """Whether the reference says what is right, and can be run beside the target; else recorded outputs are good."""
    given, checker = settings.reference, settings.checker
    ahead = isinstance(checker, checkers.CompareChecker) and checker.golden is checkers.Golden.ahead
    other = given.name not in RUNTIMES or given.builds_engines
    return not (ahead or given.model or given.python or other or rounds(given))


def _refusals(kind: str, given: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return which words of an output say that nothing was checked, by the exit code.

    Where every code is a failure of its own, those of other codes are another failure anyhow. Where codes are listed,
    that of a wrong usage (64) is no answer, whatever was said.
    """
    codes = {*REFUSALS} - {*given["listed"], *([] if given["exits"] or given["fail_regex"] else [64])}
    if given["exits"]:
        codes &= {int(kind.removeprefix("exit "))} if kind.startswith("exit ") else set()
    return {code: [REFUSALS[code].pattern] for code in sorted(codes)}


def _digests(paths: Iterable[Path]) -> dict[str, str]:
    return {str(path): digest(path)[:16] for path in paths}


# repro.py that stands alone: it holds the model as ONNX text, and weights and inputs as lines that make them.
#
# So it can be pasted into a report whole. It is for what a reader takes in: a small model whose tensors have recipes,
# and no more lines than a few pages. Of whatever else there is `NotAlone` says why, and the script reads the files
# beside it.

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
    if isinstance(settings.checker, checkers.CommandChecker):
        inputs = _recorded(folder / data, "input") if given.get("inputs") else None
        if inputs and {"file", "allow_pickle"} & inputs.keys():
            raise NotAlone("an input with the name of an argument of numpy.savez")
        held = _write(text, weights, inputs)
        # the parser of an older one takes no name in quotes, such as a path of scopes
        release = "" if all(map(str.isidentifier, names_of(model))) else " >= 1.18"
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
    if not ran and not isinstance(settings.checker, checkers.CommandChecker):
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
        return not (settings.custom_ops or settings.provider_libraries or fill_templates.rounds(settings))
    return isinstance(settings, OnnxReferenceBackend)


def _recorded(folder: Path, stem: str) -> dict[str, str]:
    """Return the sources of a sample's tensors by name."""
    tensors = [recorded.load(path) for path in sorted(folder.glob(f"{stem}_*.pb"))]
    return {tensor.name: _made(tensor) for tensor in tensors}


def _made(tensor: TensorProto) -> str:
    """Return the source that makes exactly this tensor's array. Raises NotAlone."""
    if tensor.data_type not in recorded.NUMPY or tensor.data_location == TensorProto.EXTERNAL:
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


def _glance(source: str) -> str:
    """Return a source that a reader takes in. Raises NotAlone for another."""
    lines = source.splitlines()
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    longest = max((len(text) for text in texts if isinstance(text, (str, bytes))), default=0)
    found = len(lines), max(map(len, lines)), longest
    if any(one > most for one, most in zip(found, (MOST_LINES, MOST_COLUMNS, MOST_CHARACTERS), strict=True)):
        raise NotAlone("{} lines of {} columns, and a literal of {} characters".format(*found))
    return source


log = logging.getLogger(__name__)

REPRO_NAME = "repro.py"
# failures after which a process is not there to tell of them
_ENDS_THE_PROCESS = ("death", "timeout", "memory", "exit")
_MOST_NODES = 20
_MISSED, _MISSED_LOW = 0.001, 0.01
"""How often the script of a flaky failure may end without having seen it: by the rate that was measured, and by one
that is a standard deviation lower."""
_OWN_PROCESS = ("command", "interactive")  # these run nothing that may take the script down
_FIRST = ("python", "numpy", "onnx", "onnxruntime")
_CPU = ["CPUExecutionProvider"]
# types that NumPy has under no name of its own
_NARROW = frozenset(kind for name, kind in TensorProto.DataType.items() if name.startswith(("BFLOAT", "FLOAT8")))


@dataclass(frozen=True)
class Repro:
    """The source of a script, and whether it stands alone."""

    source: str = ""
    alone: bool = False


def repro(
    folder: Path,
    summary: Summary,
    settings: Settings,
    cwd: Path,
    samples: Sequence[Sample],
    printed: Printed | None = None,
    copies: Mapping[Path, str] | None = None,
) -> Repro:
    """Return ``repro.py`` for what lies in ``folder``, with a test data set for each of the ``samples``.

    Run by any Python >= 3.8, it exits with 1 if the failure shows, 0 if not, 2 if that machine cannot tell. ``cwd``:
    where the user stands. It stands alone where it can. ``printed``: None: it never does. ``copies``: files of the
    check, by their paths here (see `bundled_check_files`); None: the check lies where it was run.
    """
    target, checker, failure = settings.target, settings.checker, summary.failure
    stage, kind = failure.stage, failure.kind
    ends, error = kind.startswith(_ENDS_THE_PROCESS), kind.startswith("error")
    judge = template_of(settings, stage, runs=not ends and not error)
    command, runs = judge == "command", judge in ("runs", "builds", "finite", "compare")
    values = values_of(checker, cwd, summary.evidence, kind)
    if copies is not None:
        values = bundled_check_files.moved(values, checker, cwd, copies)
    model, versions = summary.model or "reduced.onnx", relevant(summary)
    data = [f"test_data_set_{number}" for number in range(len(samples))]
    meant = any(not value.finite for sample in samples for value in sample.expected.values())
    loaded, place = parse(folder / model), getattr(checker, "place", None)
    weights, nodes = sorted(locations(loaded)), summary.culprits
    more = len(nodes) - _MOST_NODES
    order = dict.fromkeys(name for name in (*_FIRST, *versions) if name in versions)
    declared = [value.type for value in (*loaded.graph.input, *loaded.graph.output)]
    containers = any(one.WhichOneof("value") != "tensor_type" for one in declared)
    types = {one.tensor_type.elem_type for one in declared}
    ran = {"target": target} if runs else {}
    if judge == "compare" and runs_beside(settings):
        ran["reference"] = settings.reference
    from_files = judge == "compare" and "reference" not in ran
    engine = target if runs and isinstance(target, TensorRtBackend) else None
    given: dict[str, Any] = {
        **(fill_templates.values_of(engine, cwd) if engine else {}),
        **values,
        "stage": stage,
        "kind": kind,
        "detail": failure.detail[: 180 if error else 60],
        "raised": sorted({one.partition(" at ")[0].strip() for one in failure.raised.split(", ")} - {""}),
        "nodes": [*nodes[:_MOST_NODES], *([f"and {more} more"] if more > 0 else [])],
        "then": ", ".join(f"{name} {versions[name]}" for name in order),
        "model": model,
        "data": list(data or [""])[: 1 if command and not values["samples"] else None],
        # which files of the bundle lie where, while a command runs that reads a fixed path
        "place": {place: model, **{str(Path(place).parent / name): name for name in weights}} if place else {},
        # some good output is not finite, so that only the output counts that failed
        "meant": meant and summary.evidence.get("output"),
        "shapes": not error and not ends,
        "error": error,
        "ends": not command and (ends or judge == "python" or bool(checker.memory_mb)),
        "containers": containers,
        "recorded": from_files,
        "recorded_containers": from_files and containers,
        "narrow": bool(types & _NARROW),
        "plain": not (containers or types & _NARROW),
        "text": containers or TensorProto.STRING in types,
        "whole": containers or any(number in recorded.INTEGERS for number in types),
        "accelerated": any(getattr(one, "providers", _CPU) != _CPU for one in ran.values()),
        "engine": engine is not None,
        "reference": "reference" in ran,
        "flaky": _flaky(summary),
        "beside": False,
    }
    sources = [*(fill_templates.runner(*one, cwd) for one in ran.items()), template(judge)]
    sources += [template(name) for name in ([] if judge in _OWN_PROCESS else ["child_process"]) + ["program"]]
    if printed:
        try:
            return Repro(source(folder, given, settings, ran, sources, printed), alone=True)
        except Exception as why:  # noqa: BLE001 - whatever cannot be held in a script lies beside it
            log.debug("%s needs the files beside it: %s: %s", REPRO_NAME, type(why).__name__, why)
    needs = {"command": ["the command with what that needs"], "python": ["what the function imports"]}.get(judge, [])
    needs += ["tensorrt (or tensorrt_rtx)"] if engine else []
    needs += ["cuda-python", "a GPU"] if engine and judge != "builds" else []
    files = [template("files"), template("containers" if containers else "values")]
    return Repro(compose([*files, *sources], {**given, "beside": True}, needs))


def _flaky(summary: Summary) -> dict[str, int]:
    """Return how often a flaky failure has to be tried to show, and what that rests on; nothing of any other one.

    Where a model that must pass fails at times as well, trying again would
    show that instead, so the script tries once.
    """
    rates = summary.reliability or CheckReliability()
    whole, control = rates.whole_model or Count(), rates.control or Count()
    failed, of = whole.failed, whole.of
    if not 0 < failed < of or control.failed:
        return {}
    low = max(failed - math.sqrt(failed), 0.5)
    bounds = ((_MISSED, failed), (_MISSED_LOW, low))
    times = max(math.floor(math.log(missed) / math.log(1 - fails / of)) + 1 for missed, fails in bounds)
    return {"times": times, "rarely": round(1 / _MISSED), "failed": failed, "of": of}
