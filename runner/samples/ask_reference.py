"""Whether the reference takes inputs that were made up, and the file in which a user says what the model takes.

A model that refuses what Winnow invents (a mask of the wrong length, an index beyond its rows) has no bug, and none
that makes a NaN of it, as the square root of a negative input. So before anything is reported the reference is asked.
Where it refuses, other sizes are tried; where it refuses all of them, or makes the NaN too, nobody can tell a bug from
an input that makes no sense.

A NaN comes from what was made up where an operator does not take a value that depends on it (`needed_values`), and
the reference makes finite outputs once those inputs, and no others, hold other values; so does a node that it refuses
to run, and the run then goes on with these. Where nothing is known of the operator (it stands in a graph that nobody
could look into) other values of all inputs are tried. A NaN of weights, of rounding or of cancellation stays a
finding. Where other values heal the node and the outputs are not finite all the same, the run goes on with these. Where
none are found, and the node's elements come and go with the inputs, nobody can tell whose it is.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from onnx import TensorProto

from runner.exit_codes import NotApplicable, UsageError
from runner.files import write_text
from runner.journal.replay_yaml import escaped
from runner.judgment import NON_FINITE
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.dtypes import is_integer, limits_of
from runner.model.values.recorded import TensorFile, paths
from runner.run_folder import INPUTS
from runner.samples.declared_inputs import declared, type_name
from runner.samples.needed_values import NeededValues, Run, Spans
from runner.samples.sizes_and_ranges import accepted, attempts, given_range, larger_shapes, made_up, override, samples
from runner.schema.backend import BackendSettings
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.text import listed, one_line, program_name
from runner.verdict import Signature
from runner.workers.pool import Pool, lease_of
from runner.workers.reply import Reply

_ONES = [1, 1.00000001]
_OTHERS = ([0.5, 1.5], [1, 2], _ONES)
"""Ranges of floats that few operators refuse. Integers are ones."""


@dataclass(frozen=True)
class Taken:
    """``inputs``: settings with which the reference runs the model; the user's own where nothing better is known.

    ``sizes``: of open axes, where others were tried. ``refused``: why the first attempt tells nothing where no other
    sizes do: what the reference said of it, or what it makes; "": it takes these, or it was not asked.
    ``not_finite``: it makes a NaN or Inf of them. ``offered``: inputs of other values that it takes. ``unclear``: why a
    run of it tells nothing. ``healed``: what other values were taken for, in words. ``doubt``: why nobody can tell
    whether the NaN or Inf of ``doubtful`` nodes comes of the inputs, with the values that were tried.
    """

    inputs: Any
    refused: str = ""
    sizes: tuple[str, ...] = ()
    unclear: str = ""
    not_finite: bool = False
    offered: RandomInputs | None = None
    healed: str = ""
    doubt: str = ""
    doubtful: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """What to say of sizes and values that were tried; "": none were."""
        sizes = (
            f"the input sizes are assumed, so that the reference runs: {listed(self.sizes, 20)}" if self.sizes else ""
        )
        return "; ".join(filter(None, (sizes, self.healed)))

    def explains(self, failure: Signature | None) -> bool:
        """Whether a failure of the file may come of the inputs that were made up, so that it shows no bug.

        A check of the user's does not say what it looks at: a NaN explains whatever it finds wrong with values.
        """
        if failure is None or failure.stage not in ("infer", "check") or not self.refused:
            return False
        about_values = failure.about_values if failure.stage == "check" else failure.kind in NON_FINITE
        return not self.not_finite or about_values


def taken(
    settings: Settings,
    backend: BackendSettings,
    graph: Graph,
    model: Path,
    pool: Pool,
    folder: Path,
    *,
    given_too: bool = False,
    run: Callable[[], Run] | None = None,
) -> Taken:
    """Ask the reference, ``backend``, whether it runs a model on inputs that are made up; try others where it does not.

    ``run``: returns what it has made of each tensor; None: that is not known.

    It is not asked where nothing is made up (but with ``given_too``), about another model (reference.model), or where
    the target has profiles. Only an error at inference counts, and a NaN or Inf: a crash is a verdict, and a model that
    does not load has another problem.
    """
    given = settings.inputs
    if settings.reference.model or getattr(settings.target, "profiles", None) or not isinstance(given, RandomInputs):
        return Taken(given)
    try:
        guessed, free = made_up(given, graph), _free(given, graph)
    except NotApplicable:
        return Taken(given)
    usual = accepted(given, graph).ranges.items()
    masks = [name for name, span in usual if span == [1, 2]]
    if not (guessed or free or given_too):
        return Taken(given)
    reference = Reference(backend, graph, model, pool, folder, time.monotonic() + given.timeout)
    known = NeededValues(run(), free, masks) if run else None
    first = unclear = ""
    for number, attempt in enumerate(attempts(given, graph)):
        if number and (time.monotonic() > reference.ends or not guessed):
            break
        inputs = attempt.applied(given)
        try:
            reply = reference.run(inputs)
        except UsageError as error:  # too large for this machine, say
            unclear = unclear or str(error)
            continue
        if reply.value is not None:
            spans = dict(one for one in attempt.ranges.items() if one not in usual)
            accepts = (
                Taken(inputs, sizes=attempt.sizes, healed=_runs_with(_in_words(spans), first))
                if number
                else Taken(given)
            )
            if _is_finite(reply):
                return accepts
            now = replace(known, run=known.run.again(inputs)) if known and number else known
            if now and now.suspects:
                return reference.needed(accepts, now)
            offered = reference.others(inputs, free) if now is None or now.untold else None
            return replace(accepts, refused=_NOT_FINITE, not_finite=True, offered=offered) if offered else accepts
        if reply.failure is None or reply.failure.stage != "infer":
            return Taken(given, unclear=reply.why)
        first = first or one_line(reply.failure.message)
        needed = reference.needed(Taken(given), known, first) if known and not number else Taken(given)
        if needed.inputs != given:
            return needed
    offered = reference.others(given, free)
    refused = first if guessed or given_too or offered else ""
    return Taken(given, refused, unclear=unclear, offered=offered)


@dataclass(frozen=True)
class Reference:
    """What is asked. ``ends``: when its time is over."""

    backend: BackendSettings
    graph: Graph
    model: Path
    pool: Pool
    folder: Path
    ends: float

    def run(self, inputs: RandomInputs) -> Reply:
        """Run the model and return what it replies; its files are there until the next run."""
        backend, pool, place = self.backend.to_json(), self.pool, self.folder / "asked"
        shutil.rmtree(place, ignore_errors=True)
        drawn = [paths(one) for one in samples(inputs, self.graph, pool, place)]
        args = {"backend": backend, "model": str(self.model), "samples": drawn, "out": str(place / "outputs")}
        python, left = self.backend.python, max(self.ends - time.monotonic(), 1.0)
        lease = lease_of(backend, pool, python)
        return pool.call("run", args, python=python, timeout=left, confirm=False, lease=lease)

    @staticmethod
    def differs(reply: Reply) -> bool:
        """Whether what it replied is finite, and shows something: an output with elements of which not all are one."""
        every = reply.value["samples"] if reply.value is not None and _is_finite(reply) else ()
        files = [TensorFile.from_json(one) for sample in every for one in sample.values()]
        arrays = [recorded.read(one) for one in files if one.structure is None]
        return any((one.size == 1 and one.any()) or bool((one != one.flat[:1]).any()) for one in arrays if one.size)

    def others(self, inputs: RandomInputs, names: Sequence[str]) -> RandomInputs | None:
        """Return inputs with other values of these names, of which finite outputs come; None: none are known."""
        whole = {name for name in names if is_integer(self.graph.value_types[name].tensor_type.elem_type)}
        for span in _OTHERS if names else ():
            spans = {name: [1, 2] if name in whole else span for name in names}
            other = replace(inputs, ranges={**inputs.ranges, **spans})
            if _is_finite(self.run(other)):
                return other
        return None

    def filling(self, given: RandomInputs, names: Sequence[str]) -> str:
        """Return the override by which outputs have elements, finite ones; "": none is known.

        First one integer is another, then all, then sizes, then all numbers.
        """
        types = {name: self.graph.value_types[name].tensor_type.elem_type for name in _free(given, self.graph)}
        whole = {name: kind for name, kind in types.items() if is_integer(kind)}
        spans = {name: [1, 2] if kind == TensorProto.BOOL else [3, 4] for name, kind in whole.items()}
        alone = [("ranges", {name: span}) for name, span in spans.items()]
        others = [{name: [1, 2] if name in whole else span for name in types} for span in _OTHERS if span is not _ONES]
        every: list[tuple[str, Mapping[str, Sequence[float]]]] = [*alone, ("ranges", spans)]
        every += [("shapes", larger_shapes(given, self.graph)), *(("ranges", one) for one in others)]
        for key, table in every:
            changed: Any = {key: {**getattr(given, key), **table}}
            with suppress(UsageError):  # too large for this machine, say
                value = self.run(replace(given, **changed)).value if table and time.monotonic() < self.ends else None
                made = [one[name] for one in value["samples"] for name in names] if value else ()
                if made and all(one["finite"] and 0 not in one["shape"] for one in made):
                    return override(key, table)
        return ""

    def needed(self, found: Taken, now: NeededValues, refusal: str = "") -> Taken:
        """Return what is taken where a NaN or Inf comes of made-up values: others, of which it does not.

        ``refusal``: what the reference said where it does not run.
        """
        inputs, said = found.inputs, list[str]()
        while suspects := now.suspects:
            names, tried, same = now.inputs_of(suspects), list[tuple[RandomInputs, str]](), None
            for spans in now.others(names, suspects):
                other = replace(inputs, ranges={**inputs.ranges, **spans})
                tried.append((other, _in_words(spans)))
                reply = self.run(other)
                if self.differs(reply):
                    if refusal:
                        return replace(found, inputs=other, healed=_runs_with(tried[-1][1], refusal))
                    return replace(found, refused=_NOT_FINITE, not_finite=True, offered=other)
                same = same or (tried[-1] if _is_finite(reply) else None)
                if time.monotonic() > self.ends:
                    break
            if same and refusal:
                return replace(found, inputs=same[0], healed=_runs_with(same[1], refusal))
            if same:
                doubt = f"the inputs are made up: with {same[1]} the outputs are finite, and the same whatever goes in"
                return replace(found, inputs=inputs, healed="; ".join(said), doubt=doubt, doubtful=now.makers)
            then, comes_and_goes, before = None, False, [*map(now.finite, suspects)]
            for other, words in tried:
                again = replace(now, run=now.run.again(other))
                if again.run.values and all(map(again.is_cured, suspects)):
                    then = words
                    said.append(
                        f"the inputs are made up: with {then}, {listed(now.makers, 2)} makes no NaN or Inf; something "
                        "else does"
                    )
                    inputs, now = other, again
                    break
                pairs = zip(before, map(again.finite, suspects), strict=True)
                comes_and_goes |= any(
                    a is not None and b is not None and a.shape == b.shape and bool((b & ~a).any()) for a, b in pairs
                )
                if time.monotonic() > self.ends:
                    break
            if then is None:
                others = "; ".join(one for _, one in tried)
                doubt = f"the inputs are made up, and no values that work were found (tried: {others})"
                doubtful = now.makers if comes_and_goes else ()
                return replace(found, inputs=inputs, healed="; ".join(said), doubt=doubt, doubtful=doubtful)
        return replace(found, inputs=inputs, healed="; ".join(said))


_NOT_FINITE = "the reference makes NaN or Inf of them as well"


def _is_finite(reply: Reply) -> bool:
    value = reply.value
    return value is not None and all(one["finite"] for sample in value["samples"] for one in sample.values())


def _in_words(spans: Spans) -> str:
    return listed(
        [
            f"{name} in [{low:g}, {high:g})" if high > low + _SAME else f"{name}={low:g}"
            for name, (low, high) in spans.items()
        ]
    )


_SAME = 1e-6


def _runs_with(words: str, refusal: str) -> str:
    """Say with which values of made-up inputs the reference runs, where it refused the first ones."""
    return f"the inputs are made up: with {words} the reference runs. Before, it said: {refusal}" if words else ""


def _free(given: RandomInputs, graph: Graph) -> list[str]:
    """Return the inputs whose numbers are made up."""
    tensors = {name: one for name, one in declared(graph).items() if one.structure is None}
    return [name for name, one in tensors.items() if limits_of(one.dtype) and not given_range(given, name)]


def write_refusal(settings: Settings, graph: Graph, found: Taken, folder: Path) -> str:
    """Write the file to edit where the reference refuses inputs that were made up; return the message."""
    path, given = folder / INPUTS, found.offered or found.inputs
    model = str(Path(settings.model or "").expanduser().absolute())
    write_text(path, template(model, graph, given, _asked(settings)))
    why = _NOT_FINITE if found.not_finite else "the reference refuses them as well"
    said = "" if found.not_finite else f". It said: {found.refused}"
    if found.offered:
        spans = {name: span for name, span in given.ranges.items() if span != found.inputs.ranges.get(name)}
        has = _in_words(spans)
        why += f". With {has} the outputs are finite: {path.name} has these ranges"
    return f"no bug is shown: the inputs are made up, and {why}. If your inputs differ, edit {path.name}{said}"


def _asked(settings: Settings) -> dict[str, Any]:
    """Return where commands run, and what is not usual of the check and the target: a run on the file needs these."""
    checker, target = settings.checker, settings.target.settled()
    found: dict[str, Any] = {"cwd": str(Path.cwd())}
    for group, chosen, usual in (
        ("checker", checker, type(checker)()),
        ("target", target, type(target)().settled()),
    ):
        special = {key: one for key, one in asdict(chosen).items() if one != getattr(usual, key)}
        if special or chosen.name not in ("auto", "onnxruntime"):
            found[group] = {"name": chosen.name, **special}
    return found if len(found) > 1 else {}


def template(model: str, graph: Graph, given: RandomInputs, asked: Mapping[str, Any] | None = None) -> str:
    """Return a configuration with the shape and the range of each input, in the model's own names.

    ``model``: its path, as the file is to name it; ``asked``: what else it says. Raises NotApplicable for inputs that
    cannot be fed.
    """
    made = accepted(given, graph)
    shapes, ranges, fixed = [], [], []
    for name, one in declared(graph).items():
        key, dtype = yaml.safe_dump(name, width=10**6).removesuffix("\n").removesuffix("\n..."), one.inside.dtype
        size = made.shapes.get(name) or given.shapes.get(name)
        if size and one.dims is not None and any(not isinstance(dim, int) for dim in one.dims):
            shapes.append(f"    {key}: {[*size]}  # {type_name(dtype)} {one_line(one.shape_text)}")
        else:
            its_shape = "has to be given" if one.dims is None else "is fixed"
            fixed.append(f"# its shape {its_shape}: {one_line(one)}")
        if limits_of(dtype) is not None:
            default = [0, 2] if is_integer(dtype) else [-1, 1]
            span = given.ranges.get(name) or made.ranges.get(name) or given.ranges.get("") or default
            ranges.append(f"    {key}: {[*span]}" + (f"  # {one_line(made.why[name])}" if name in made.why else ""))
    head = [
        one_line(
            f"# The inputs that Winnow makes up for the model{f': {listed(made.sizes, 20)}' if made.sizes else ''}."
        ),
        "# A range ends before its second number: [1, 2] of integers is always 1.",
        f"# Change what does not fit the model, then: {program_name()} triage {INPUTS}",
        *fixed,
        yaml.safe_dump({"model": model, **escaped(asked or {})}, width=10**6, sort_keys=False).rstrip(),
        "inputs:",
        "  name: random",
    ]
    parts = [["  shapes:", *shapes], ["  ranges:", *ranges]]
    return "\n".join([*head, *(line for part in parts if part[1:] for line in part), ""])
