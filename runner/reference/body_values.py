"""Values inside bodies of owners, and loops that the reference cannot run to their end.

From a small model with an owner to one level below it: the body's nodes at top level, and what they hold.

What a body of a Loop or Scan is given in a later iteration is found by running the owner itself for so many iterations
and no more: one run on the reference, whatever the iteration, and one that ends where the owner does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from runner.exit_codes import WinnowError
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph, Node
from runner.model.graph.scopes import names_of
from runner.model.nested.hoist import (
    COUNT,
    Body,
    Hoisted,
    HoistError,
    Kind,
    Need,
    axes,
    bodies,
    hoist,
    limited_loop,
    scan_inputs,
    shortened_scan,
    states,
)
from runner.model.values import recorded as values
from runner.model.values import tensor_bytes
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import tensor_type
from runner.reference.fingerprints import Weights, agree, print_of
from runner.reference.recording import Recorded, Recorder, recorded_types
from runner.verdict import Sample

MOST_ITERATIONS = 64
"""Up to which iteration a Loop is run to find out what one of its later iterations gets."""

RecorderOf = Callable[[Graph, Path], Recorder]
"""Makes the recorder of a graph; what it writes goes to the folder, which does not exist yet."""

Carried = Sequence[Mapping[int, TensorFile]]
"""What a Loop or Scan carries into an iteration, by place, for each sample."""


class BodyPartner(Protocol):
    """The partner of a body, in a model that tells what the body's tensors should hold."""

    def carried(self, iteration: int, folder: Path) -> Carried:
        """Return what it carries into an iteration."""

    def values(self, graph: Graph, iteration: int, feeds: Sequence[Mapping[str, TensorFile]], folder: Path) -> Recorded:
        """Return good values for a model with the body's nodes in the open, as in an iteration."""


@dataclass(frozen=True, eq=False)
class Level:
    """A small model with what its tensors hold.

    ``recorded``: only of tensors that are in ``graph``. ``types``: of tensors, as far as they are known otherwise.
    """

    graph: Graph
    store: Store
    recorded: Recorded
    types: Mapping[str, onnx.TypeProto]

    @property
    def all_types(self) -> dict[str, onnx.TypeProto]:
        """What is known of types; what was recorded goes first."""
        return {**self.graph.value_types, **self.types, **self.recorded.types}

    def value(self, sample: int, name: str) -> Any:
        """Return a value as an array: recorded, or that of an initializer; None if neither is at hand."""
        found = self.recorded.values[sample].get(name) if self.recorded.values else None
        if found is not None:
            return values.contents(found)
        tensor = self.graph.initializers.get(name)
        if isinstance(tensor, onnx.TensorProto) and not tensor_bytes.is_external(tensor):
            return values.to_array(tensor)
        return None


@dataclass(frozen=True, eq=False)
class HoistedBody:
    """One level below ``above``: the same model, in which the nodes of ``body`` have taken their owner's place.

    ``hoisted.inside``: the elements of ``level.graph`` that were the body's. ``hoisted.names``: what the body's
    tensors are called there.
    """

    above: Level
    body: Body
    iteration: int
    hoisted: Hoisted
    level: Level


_NOTHING = Recorded(())


def level_of(
    made: Cut,
    samples: Sequence[Sample],
    known: Sequence[Mapping[str, TensorFile]],
    store: Store,
    types: Mapping[str, onnx.TypeProto],
    record: tuple[RecorderOf, Path] | None = None,
    whole: Recorded = _NOTHING,
) -> Level:
    """Return a candidate as a level of its own.

    ``samples``: what it is fed, one for each of ``known``: what was recorded of the model that it was cut from.
    ``record``: what makes a recorder, and the folder for its values: with it, tensors of the candidate that are not
    ``known`` are recorded. ``whole``: the recording of that model: why values must not be fed, and which nodes the
    reference cannot run, which it cannot here either.
    """
    model = copy_of(made.model)
    graph = Graph.of(model)
    present = names_of(model)
    held = [
        {**{name: value for name, value in mine.items() if name in present}, **sample.feeds}
        for mine, sample in zip(known, samples, strict=True)
    ]
    recorded = Recorded(tuple(held))
    missing = [node.index for node in graph.nodes if any(not set(node.outputs) <= mine.keys() for mine in held)]
    missing = [index for index in missing if graph.names[index] not in whole.unrunnable]
    if missing and record is not None and held:
        recorded = record[0](graph, record[1]).record(held, missing)
    recorded = _with_known(recorded, held, whole.unfit, present)
    return Level(graph, store, recorded, {name: one for name, one in types.items() if name in present})


def _with_known(
    ran: Recorded, known: Sequence[Mapping[str, TensorFile]], unfit: Mapping[str, str], present: Collection[str]
) -> Recorded:
    """Return a run with the values that were known, which may come from a better source; of tensors that are there."""
    both = ({**new, **old} for new, old in zip(ran.values, known, strict=True))
    values = tuple({name: value for name, value in sample.items() if name in present} for sample in both)
    return replace(ran, values=values, unfit={name: why for name, why in unfit.items() if name in present})


def ordered_bodies(level: Level, among: Iterable[int] | None = None) -> tuple[Body, ...]:
    """Return the bodies of a level's owners, or of these, in the order in which they should be tried.

    As the owners stand; of an If, the branch that the first sample takes comes first.
    """
    return tuple(sorted(bodies(level.graph, among), key=lambda body: (body.owner, not is_taken(level, body, 0))))


def is_taken(level: Level, body: Body, sample: int) -> bool:
    """Whether the reference ran this body for a sample; of an If whose condition is not known: the then branch."""
    if body.kind is not Kind.IF:
        return True
    condition = level.value(sample, level.graph.protos[body.owner].input[0])
    chosen = True if condition is None else bool(np.asarray(condition).ravel()[0])
    return chosen == (body.attribute == "then_branch")


def is_never_taken(level: Level, body: Body) -> bool:
    """Whether the reference ran this body for no sample: a branch of an If whose condition is known for all."""
    if body.kind is not Kind.IF:
        return False
    name, samples = level.graph.protos[body.owner].input[0], range(len(level.recorded.values))
    known = all(level.value(at, name) is not None for at in samples)
    return known and not any(is_taken(level, body, at) for at in samples)


def trip_counts(level: Level, body: Body, record: RecorderOf, folder: Path) -> tuple[int | None, ...]:
    """Return, for each sample, how many iterations a Loop or Scan makes; of other bodies: 1.

    A Loop that makes more than MOST_ITERATIONS and does not tell is said to make that many. None: not known.
    """
    counts = [_declared_count(level, body, at) for at in range(len(level.recorded.values))]
    if body.kind is Kind.LOOP and any(count != 0 for count in counts):
        ran = run_alone(level, limited_loop(level.graph, body, MOST_ITERATIONS), record, folder)
        for at, sample in enumerate(ran):
            counts[at] = _counted(level, body, at, sample.get(COUNT), counts[at])
    return tuple(counts)


def iterations(level: Level, body: Body, record: RecorderOf, folder: Path) -> int:
    """Return how many iterations a body makes for every sample; of a Loop at most MOST_ITERATIONS."""
    counts = trip_counts(level, body, record, folder)
    known = [count for count in counts if count is not None]
    if not known:
        return 1
    return min(known) if body.kind is not Kind.LOOP else min(*known, MOST_ITERATIONS)


def in_place(level: Level, body: Body) -> bool:
    """Whether the nodes of a body may take their owner's place, for all samples, and change nothing."""
    samples = range(len(level.recorded.values))
    return body.kind in (Kind.IF, Kind.FUNCTION) and all(is_taken(level, body, at) for at in samples)


def descend(
    level: Level, body: Body, record: RecorderOf, folder: Path, iteration: int = 0, partner: BodyPartner | None = None
) -> HoistedBody:
    """Hoist a body and record what its nodes hold, for every sample.

    ``folder``: for the values; it is made. The branch of an If that a sample does not take is run all the same, and
    what follows the If is fed with what that gave. ``iteration``: of a Loop or Scan. ``partner``: tells good values,
    where another model does. Raises HoistError where the body cannot be hoisted, or what it gets in this iteration is
    not known.
    """
    if iteration and body.kind not in (Kind.LOOP, Kind.SCAN):
        raise HoistError(f"{body.path} has one iteration only")
    taken = in_place(level, body)
    hoisted = hoist(level.graph, body, iteration=iteration, types=level.all_types, in_place=taken)
    graph = Graph.of(hoisted.model)
    folder.mkdir(parents=True, exist_ok=True)
    carries = any(need.role == "carried" for need in hoisted.needs)
    brought: Carried = ()
    if carries:
        brought = partner.carried(iteration, folder) if partner else carried(level, body, iteration, record, folder)
    supplied = _supplied(level, body, hoisted.needs, iteration, brought, folder)
    # the tensors of the level keep their names; those of the body have names that the level has not
    known = [{**old, **given} for old, given in zip(level.recorded.values, supplied, strict=True)]
    if partner:
        typed = Graph.of(_typed(hoisted.model, recorded_types(known), graph.outputs))
        recorded = partner.values(typed, iteration, known, folder / "values")
    else:
        ran = record(graph, folder / "values").record(known, hoisted.inside)
        recorded = _with_known(ran, known, level.recorded.unfit, names_of(hoisted.model))
    model = _typed(hoisted.model, recorded_types(recorded.values), level.graph.outputs)
    below = Level(Graph.of(model), level.store, recorded, level.types)
    return HoistedBody(level, body, iteration, replace(hoisted, model=model), below)


def begin_alike(mine: Level, body: Body, theirs: Level, partner: Body) -> bool:
    """Whether two Loops or Scans carry the same into their first iteration, as far as that is known.

    If not, what their owner reads is wrong: a body in the open would be blamed for it, whose nodes read the same then.
    """
    sides = ((mine, _sources(mine.graph, body)), (theirs, _sources(theirs.graph, partner)))
    for sample, names in product(range(len(mine.recorded.values)), zip(*(given for _, given in sides), strict=False)):
        arrays = [
            found if (found := Weights(level.graph, level.store).array(name)) is not None else level.value(sample, name)
            for (level, _), name in zip(sides, names, strict=True)
        ]
        held = [print_of([one]) for one in arrays if isinstance(one, np.ndarray) and one.dtype.kind not in "OSU"]
        if len(held) == 2 and held[0].fits(held[1]) and held[0].numbers.size and not agree(held[0], held[1]):
            return False
    return True


def _sources(graph: Graph, body: Body) -> Sequence[str]:
    """Return what a Loop or Scan carries into its first iteration; other owners carry nothing."""
    given, first = graph.protos[body.owner].input, 2 * (body.kind is Kind.LOOP)
    return given[first : first + states(graph, body)] if body.kind in (Kind.LOOP, Kind.SCAN) else ()


def _typed(model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], kept: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose inputs and outputs have types; bodies often have none.

    An output that is none of ``kept`` goes where its type is not known: the node that gives it cannot be run.
    """
    copy = copy_of(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        if not value.type.WhichOneof("value") and value.name in types:
            value.type.CopyFrom(types[value.name])
    typed = [value for value in copy.graph.output if value.type.WhichOneof("value") or value.name in kept]
    set_messages(copy.graph.output, typed)
    return copy


def _declared_count(level: Level, body: Body, sample: int) -> int | None:
    """The number of iterations as far as it can be told without running anything; of a Loop: the most, or None."""
    owner = level.graph.protos[body.owner]
    if body.kind is Kind.SCAN:
        count = scan_inputs(owner)
        if not 0 < count <= len(owner.input):
            return None
        along = axes(owner, "scan_input_axes", count)
        found = level.value(sample, owner.input[len(owner.input) - count])
        return None if found is None else int(found.shape[along[0]])
    if body.kind is not Kind.LOOP:
        return 1
    given = [level.value(sample, name) if name else None for name in [*owner.input, "", ""][:2]]
    limit, start = (None if one is None else np.asarray(one).ravel()[0] for one in given)
    if start is not None and not start:
        return 0
    return None if limit is None else max(int(limit), 0)


def _counted(level: Level, body: Body, sample: int, last: TensorFile | None, most: int | None) -> int | None:
    """How many iterations a Loop makes, from the last one of its limited run, or from what it stacked."""
    if last is not None:
        made = int(values.read(last).ravel()[0]) + 1
        return made if most is None else min(made, most)
    stacked = level.graph.protos[body.owner].output[states(level.graph, body) :]
    recorded = level.recorded.values[sample]
    return next((recorded[name].shape[0] for name in stacked if name in recorded and recorded[name].shape), None)


def _supplied(
    level: Level, body: Body, needs: Sequence[Need], iteration: int, brought: Carried, folder: Path
) -> list[dict[str, TensorFile]]:
    """What the iteration is given, for each sample; ``brought``: what is carried into it."""
    found: list[dict[str, TensorFile]] = [{} for _ in level.recorded.values]
    slices = [need for need in needs if need.role == "slice"]
    for sample, given in enumerate(found):
        for number, need in enumerate(slices):
            array = level.value(sample, need.source)
            if array is None:
                raise HoistError(f"{body.path}: no value is known of {need.source!r}, which it takes slices of")
            if iteration >= array.shape[need.axis]:
                raise HoistError(f"{body.path} makes {array.shape[need.axis]} iterations")
            at = array.shape[need.axis] - 1 - iteration if need.reverse else iteration
            path = folder / f"slice{sample}_{number}.pb"
            given[need.name] = values.write(np.take(array, at, need.axis), need.name, path)
    for sample, ran in enumerate(brought):
        for number, need in enumerate(need for need in needs if need.role == "carried"):
            value = ran.get(need.place)
            if value is None:
                raise HoistError(f"{body.path}: what it carries into iteration {iteration} cannot be recorded")
            path = folder / f"carried{sample}_{number}.pb"
            found[sample][need.name] = values.renamed(value, need.name, path)
    return found


def carried(level: Level, body: Body, iteration: int, record: RecorderOf, folder: Path) -> Carried:
    """Return what a Loop or Scan carries into an iteration: what it gives after so many."""
    model, parts = shortened(level, body, iteration, folder)
    ran = run_alone(level, model, record, folder / "carried", parts)
    if body.kind is Kind.LOOP:
        most = [_declared_count(level, body, at) for at in range(len(ran))]
        if any(limit is not None and limit <= iteration for limit in most):
            raise HoistError(f"{body.path} makes {min(filter(None, most), default=0)} iterations")
        done = [COUNT in sample and int(values.read(sample[COUNT]).ravel()[0]) + 1 == iteration for sample in ran]
        if not all(done):
            raise HoistError(f"{body.path} does not get to iteration {iteration}")
    gives = model.graph.node[-1].output[: states(level.graph, body)]
    return [{place: sample[name] for place, name in enumerate(gives) if name in sample} for sample in ran]


def shortened(
    level: Level, body: Body, count: int, folder: Path, *, stacked: bool = False
) -> tuple[onnx.ModelProto, Sequence[Mapping[str, TensorFile]]]:
    """Return a model of a Loop or Scan alone that makes so many iterations, and what it is fed beside what is known.

    ``folder``: for that. ``stacked``: a Loop gives what it stacks, too.
    """
    if body.kind is Kind.LOOP:
        return limited_loop(level.graph, body, count, stacked=stacked), ()
    owner = level.graph.protos[body.owner]
    model, sources = shortened_scan(level.graph, body)
    along = axes(owner, "scan_input_axes", len(sources))
    reverse = axes(owner, "scan_input_directions", len(sources))
    parts = []
    for sample in range(len(level.recorded.values)):
        part = {}
        for place, (name, source) in enumerate(sources.items()):
            array = level.value(sample, source)
            length = array.shape[along[place]]
            chosen = range(length - count, length) if reverse[place] else range(count)
            path = folder / f"part{sample}_{place}.pb"
            part[name] = values.write(np.take(array, list(chosen), along[place]), name, path)
        parts.append(part)
    return model, parts


def run_alone(
    level: Level,
    model: onnx.ModelProto,
    record: RecorderOf,
    folder: Path,
    more: Sequence[Mapping[str, TensorFile]] = (),
) -> tuple[Mapping[str, TensorFile], ...]:
    """Run a model of one owner on what the level holds; return that as well."""
    graph = Graph.of(model)
    wanted = {name for node in graph.nodes for name in node.inputs}
    feeds = [{name: value for name, value in sample.items() if name in wanted} for sample in level.recorded.values]
    fed = [{**a, **b} for a, b in zip(feeds, more or feeds, strict=True)]
    return tuple({**one, **ran} for one, ran in zip(fed, record(graph, folder).record(fed).values, strict=True))


# Bodies in which something begins, laid open: to look at, and not to run.

_DEEPEST = 8

Begins = Callable[[Graph, Node, Mapping[str, TensorFile]], bool]
"""Whether something begins in a node, which holds these values in a sample."""


def opened(level: Level, begins: Begins, record: RecorderOf, folder: Path) -> tuple[Level, tuple[str, ...]]:
    """Return a level with the nodes of the bodies in which something begins, down to the innermost, and their owners.

    They take their owner's place where it runs them once, and stand before it otherwise, as its first iteration in
    which it begins. A body that cannot be looked into stays closed. ``folder``: for values.
    """
    owners = list[str]()

    def found(at: Level, node: Node) -> bool:
        return node.name not in owners and any(begins(at.graph, node, one) for one in at.recorded.values)

    def inside() -> Level | None:
        for body in bodies(level.graph, [node.index for node in level.graph.nodes if found(level, node)]):
            once = in_place(level, body)
            if body.kind is Kind.IF and not once:
                continue
            here = folder / f"{len(owners)}_{body.owner}"
            with suppress(HoistError, CutError, WinnowError, ValueError):
                for iteration in range(iterations(level, body, record, here / "count")):
                    below = descend(level, body, record, here / str(iteration), iteration)
                    if any(found(below.level, below.level.graph.nodes[index]) for index in below.hoisted.inside):
                        owners.append(level.graph.nodes[body.owner].name)
                        return below.level if once else _beside(below)
        return None

    while len(owners) < _DEEPEST and (deeper := inside()):
        level = deeper
    return level, tuple(owners)


def _beside(below: HoistedBody) -> Level:
    """Return the level below with the owner back in it; what the body is given is what the owner reads."""
    level, needs = below.level, [need for need in below.hoisted.needs if need.role != "result"]
    model, at = copy_of(level.graph.model), level.graph.positions[below.body.owner]
    given = [helper.make_node("Identity", [need.source], [need.name]) for need in needs]
    nodes = [*model.graph.node[:at], *given, below.above.graph.protos[below.body.owner], *model.graph.node[at:]]
    set_messages(model.graph.node, nodes)
    fed = {need.name for need in below.hoisted.needs}
    set_messages(model.graph.input, [value for value in model.graph.input if value.name not in fed])
    return replace(level, graph=Graph.of(model))


# Loops that the reference cannot run to their end: what kind of values they would give.
#
# A model in which the rank of an output is not known is refused by some runtimes and checkers. One or two iterations
# tell the rank; the sizes stay open, since they may grow.

ITERATIONS = 2


def loop_types(level: Level, record: RecorderOf, folder: Path) -> dict[str, onnx.TypeProto]:
    """Return the types of what the Loops among ``level.recorded.unrunnable`` carry, sizes left open.

    Of a Loop that cannot be run at all, nothing. ``folder``: for values.
    """
    found: dict[str, onnx.TypeProto] = {}
    for number, body in enumerate(bodies(level.graph)):
        owner = level.graph.nodes[body.owner]
        if body.kind is not Kind.LOOP or owner.name not in level.recorded.unrunnable:
            continue
        try:
            model = limited_loop(level.graph, body, ITERATIONS)
            (values, *_) = run_alone(level, model, record, folder / str(number))
        except (HoistError, CutError, WinnowError, ValueError):
            continue
        for name in owner.outputs:
            if name in values and values[name].structure is None:
                found[name] = tensor_type(values[name].dtype, (None,) * len(values[name].shape))
    return found
