"""The parent of a converted model, `reference.model`: read, run, and asked what the child's tensors should hold."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from runner.checkers import metrics
from runner.checkers.metrics import compare_recorded
from runner.checkers.tolerances import Rules, rules_of
from runner.exit_codes import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import QUANTIZING
from runner.model.nested.hoist import Body, HoistError, hoist, kind_of
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference import body_values
from runner.reference.body_values import Carried, Level, in_place, ordered_bodies
from runner.reference.good_values import UnfitError, beside_mask, cast, good_value
from runner.reference.hints import UNJUDGED
from runner.reference.input_pairs import by_order, can_be, matched_inputs, other_pairs, said_of
from runner.reference.lineage import Lineage, ParentValues
from runner.reference.models import ingest, outputs_of, recorder, recording_backend
from runner.reference.quantized import inputs_meant
from runner.reference.recording import Recorded, Recorder
from runner.reference.teacher_forcing import RecordedModel
from runner.reference.tensor_pairs import How
from runner.samples.declared_inputs import Declared, declared
from runner.schema.backend import BackendSettings, map_of
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings
from runner.text import listed, one_line
from runner.verdict import Sample
from runner.workers.pool import Pool

# What is known of two related models before anything runs: the user's map, and how their inputs correspond.

_REALS = ("float", "double", "bfloat")
_CLOSEST, _LONGEST = 3, 200
PARTNERS = "partners.json"
"""The map that Winnow writes of a model that it quantizes itself."""


def read_map(given: Any, child: Graph, parent: Graph) -> dict[str, str | None]:
    """Return ``reference.map``: the parent's tensor (None: it has none) by the child's.

    ``given``: the mapping itself, the path of a JSON or YAML file with one, or None. Raises UsageError for a file that
    holds none, and for names that are no tensors of the models.
    """
    if given is None:
        return {}
    key = "reference.map"
    if isinstance(given, str):
        key = f"reference.map={given}"
        given = _read(given)
    # aliases of aliases can stand for texts beyond all memory
    if not isinstance(given, Mapping) or any(isinstance(one, (Mapping, list)) for one in given.values()):
        raise UsageError(f"{key}: it must be a mapping {{tensor of the model: tensor of reference.model}}")
    found = {str(mine): None if theirs is None else str(theirs) for mine, theirs in given.items()}
    wrong = [
        *_unknown(found, _tensors(child), "model"),
        *_unknown([name for name in found.values() if name is not None], _tensors(parent), "reference.model"),
    ]
    if wrong:
        raise UsageError(f"{key}: {'; '.join(wrong)}")
    return found


def _does_not_run(
    ran: Recorded, inputs: Mapping[str, str], mine: Mapping[str, Declared], theirs: Mapping[str, Declared]
) -> UsageError:
    pairs = ((mine[name], theirs[to]) for to, name in inputs.items())
    others = [f"{other} gets {one}" for one, other in pairs if not can_be(one, other, mine)]
    said = f": its input {listed(others)} of the model. Both have to take the same inputs" if others else ""
    why = one_line(ran.reason, _LONGEST)
    return UsageError(f"reference.model does not run on the model's inputs{said} ({listed(ran.unrunnable)}: {why})")


def _read(path: str) -> Any:
    place = Path(path).expanduser()
    try:
        return yaml.safe_load(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"reference.map={path}: it cannot be read ({error}). Give a JSON or YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none; one nested without end
        said = " ".join(str(error).split())
        raise UsageError(f"reference.map={path}: it is neither JSON nor YAML ({said})") from None


def _tensors(graph: Graph) -> frozenset[str]:
    return frozenset({*graph.producers, *graph.inputs, *graph.initializers})


def _unknown(names: Collection[str], tensors: Collection[str], key: str) -> list[str]:
    found = []
    for name in names:
        if name not in tensors:
            close = get_close_matches(name, tensors, _CLOSEST)
            found.append(f"{key} has no tensor {name!r}" + (f"; close: {', '.join(map(repr, close))}" if close else ""))
    return found


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inherited:
    """What a parent leaves to its child.

    ``recorded``: good values for the child. ``digest``: of the parent and of what was matched with what. ``origins``:
    the name of the parent's node that makes what a node of the child makes, by its name. ``parent``: as it ran.
    ``partners``: the parent's tensor by the child's, of those that have the same elements in the same shape.
    ``better``: pairs of inputs with which all outputs are right, where the order told others.
    """

    recorded: Recorded
    digest: str
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    parent: RecordedModel
    partners: Mapping[str, str]
    better: Mapping[str, str] = field(default_factory=dict)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What the parent is fed, and what its outputs are, as far as these were recorded."""
        graph = self.parent.graph
        return tuple(Sample.of(one, graph.inputs, graph.outputs) for one in self.parent.values)

    @property
    def parent_types(self) -> dict[str, int]:
        """The element types of the parent's tensors, as it ran."""
        ran = {name: one.dtype for sample in self.parent.values for name, one in sample.items()}
        return {**self.parent.graph.kinds, **ran}


def inherit(
    settings: Settings,
    graph: Graph,
    store: Store,
    samples: Sequence[Mapping[str, TensorFile]],
    pool: Pool,
    folder: Path,
    parent: tuple[Graph, Store] | None = None,
    inside: str = "",
) -> Inherited:
    """Run both models of a child and its parent and return what the child's tensors should hold, for each sample.

    ``graph``, ``store``: the child. ``samples``: values of its inputs. ``parent``: None: it is read. ``inside``: how
    names begin inside a body that is in the open. Raises UsageError where the two have nothing to do with each other,
    and for what is wrong with the parent or the map.
    """
    if parent is None:
        path, theirs = Path(settings.reference.model or "").expanduser().absolute(), Store(folder / "store")
        sha256 = ingest("reference.model", path, theirs, settings, pool)["sha256"]
        other = Graph.load(theirs.structure)
    else:
        (other, theirs), sha256 = parent, ""
    told = read_map(map_of(settings.reference), graph, other)
    inputs, feeds = _fed(settings, graph, other, samples, folder)
    ran = recorder(settings, recording_backend(settings), other, theirs, pool, folder / "parent").record(feeds)
    elder = RecordedModel(other, theirs, ran.values)
    child = _run(settings, graph, store, pool, folder / "child", samples)
    rules = rules_of(settings.checker)
    lineage = Lineage(
        RecordedModel(graph, store, child.values),
        elder,
        told,
        inputs,
        lambda one, held, place, values: _run(settings, one, held, pool, place, values),
        lambda mine, good: _passes(mine, good, rules),
        folder,
    )
    try:
        found = lineage.descend()
    except UsageError:
        if ran.unrunnable:  # so its outputs are not known, and nothing can be their partner
            raise _does_not_run(ran, inputs, declared(graph), declared(other)) from None
        raise
    recorded = replace(
        ran,
        values=found.values,
        partners=frozenset(found.partners),
        unfit=found.unfit,
        narrow=found.narrow,
        wrong=found.wrong,
        error=_error(graph.outputs, child, found, rules),
        seconds=ran.seconds + child.seconds,
    )
    said, origins = _said(settings, graph, other, found, inside), _origins(graph, other, found)
    partners = {
        name: one.tensor for name, one in found.partners.items() if not one.reshaped and name not in found.integers
    }
    above = Inherited(recorded, _digest(sha256, found), origins, said, elder, partners)
    pairs, better = by_order(inputs, told), dict[str, str]()
    reference: Any = settings.reference
    if pairs and not inside and (recorded.wrong or recorded.error > 1):
        for others in other_pairs(pairs, declared(graph)):
            given = replace(settings, reference=replace(reference, map={**told, **others}))
            with suppress(UsageError):
                good = with_outputs(given, graph, store, above, samples, pool, folder / "pairs")
                sides = [(mine.get(name), one.get(name)) for mine, one in zip(child.values, good, strict=True)
                         for name in graph.outputs]  # fmt: skip
                if all(mine and one and _passes(mine, one, rules) for mine, one in sides):
                    better = others
                    break
    return replace(above, warnings=(*said_of(pairs, better), *said), better=better)


def with_outputs(
    settings: Settings,
    graph: Graph,
    store: Store,
    above: Inherited,
    samples: Sequence[Mapping[str, TensorFile]],
    pool: Pool,
    folder: Path,
) -> tuple[Mapping[str, TensorFile], ...]:
    """Return further samples of a child with good values of its outputs, by a plain run of its parent where that does.

    ``above``: what the parent tells of other samples. Raises UsageError as `inherit` does.
    """
    other, held = above.parent.graph, above.recorded.values[0]
    names = {name: above.partners.get(name, "") for name in graph.outputs}

    def in_pieces() -> tuple[Mapping[str, TensorFile], ...]:
        return inherit(settings, graph, store, samples, pool, folder / "pieces").recorded.values

    if not all(name in held and theirs in other.outputs for name, theirs in names.items()):
        return in_pieces()
    _, feeds = _fed(settings, graph, other, samples, folder)
    path = above.parent.store.write(copy_of(other.model), folder, "parent")
    try:
        ran = outputs_of(settings, pool, path, feeds, folder)
    except UsageError as error:  # the memory for the whole, say
        log.info("reference.model: %s; its tensors are recorded in pieces", error)
        return in_pieces()
    finally:
        path.unlink(missing_ok=True)
    found = []
    for at, (fed, made) in enumerate(zip(samples, ran, strict=True)):
        good = {}
        for place, (name, theirs) in enumerate(names.items()):
            good[name] = good_value(made[theirs], name, held[name].dtype, None, folder / f"good{at}_{place}.pb").file
        found.append({**fed, **good})
    return tuple(found)


@dataclass(frozen=True)
class InheritedBody:
    """The partner of a child's body in its parent.

    ``level``: the parent. ``body``: None: its nodes stand at the top level there. ``placed``: it may take its owner's
    place. ``store``: the child's weights. ``tell``: gets what the parent tells of a graph with the body in the open.
    ``path``: the child's body.
    """

    settings: Settings
    level: Level
    body: Body | None
    placed: bool
    store: Store
    pool: Pool
    tell: Callable[[Graph, Inherited], None]
    path: str

    @staticmethod
    def of(
        settings: Settings, above: Inherited, graph: Graph, body: Body, store: Store, pool: Pool, *, placed: bool,
        tell: Callable[[Graph, Inherited], None],
    ) -> InheritedBody:  # fmt: skip
        """Return the partner of ``body`` in ``graph``; ``above``: what the parent tells of this. Raises HoistError."""
        elder, owner = above.parent, graph.names[body.owner]
        level, origin = Level(elder.graph, elder.store, Recorded(elder.values), {}), above.origins.get(owner)
        owners = [node.index for node in elder.graph.nodes if node.name == origin]
        found = [
            one
            for one in ordered_bodies(level, owners)
            if (in_place(level, one) if placed else (one.kind, one.attribute) == (body.kind, body.attribute))
        ]
        if not owners:
            raise HoistError(f"{owner} has no partner in reference.model")
        if not found and not (placed and kind_of(elder.graph, owners[0]) is None):
            raise HoistError(f"the partner of {owner}, {origin} in reference.model, has no such nested graph")
        return InheritedBody(settings, level, found[0] if found else None, placed, store, pool, tell, body.path)

    def values(self, graph: Graph, iteration: int, feeds: Sequence[Mapping[str, TensorFile]], folder: Path) -> Recorded:
        """Return good values for the child with the body in the open: the same one stands so in the parent."""
        other, types = self.level.graph, self.level.all_types
        if self.body:
            open_ = hoist(other, self.body, iteration=iteration, types=types, in_place=self.placed)
            other = Graph.of(open_.model)
        kinds = {name: one.dtype for name, one in declared(graph).items()}
        try:
            held = [{name: dtype for name, dtype in kinds.items() if name in one} for one in feeds]
            samples = [cast(one, held[at], folder / f"feeds{at}") for at, one in enumerate(feeds)]
        except UnfitError as error:
            raise HoistError(f"what it carries does not fit into its types: {error}") from None
        parents = (other, self.level.store)
        found = inherit(self.settings, graph, self.store, samples, self.pool, folder, parents, f"{self.path}/")
        self.tell(graph, found)
        return found.recorded

    def count(self, folder: Path) -> int:
        """Return how many iterations it makes for every sample."""
        return 1 if self.body is None else body_values.iterations(self.level, self.body, self._record, folder)

    def carried(self, iteration: int, folder: Path) -> Carried:
        """Return what it carries into an iteration."""
        place = folder / "parent"
        place.mkdir(parents=True)
        return body_values.carried(self.level, self._body, iteration, self._record, place)

    def stopped(
        self, count: int, made: Sequence[Mapping[str, TensorFile]], names: Sequence[str], folder: Path
    ) -> tuple[Mapping[str, TensorFile], ...]:
        """Return what a child's owner alone should give after so many iterations, in the place of what it gave.

        ``made``: that, ``names``: its outputs. Raises HoistError where the parent's owner gives more or less of them.
        """
        folder.mkdir()
        model, parts = body_values.shortened(self.level, self._body, count, folder, stacked=True)
        ran = body_values.run_alone(self.level, model, self._record, folder / "values", parts)
        if len(names) != len(model.graph.output):
            raise HoistError(f"{self._body.path}: {len(names)} outputs are wanted of its owner in reference.model")
        found = [dict(one) for one in made]
        for at, (own, good) in enumerate(zip(found, ran, strict=True)):
            for place, (name, theirs) in enumerate(zip(names, model.graph.output, strict=True)):
                if name in own and theirs.name in good:
                    held, path = own[name], folder / f"{at}_{place}.pb"
                    own[name] = good_value(good[theirs.name], name, held.dtype, held, path).file
        return tuple(found)

    @property
    def _body(self) -> Body:
        assert self.body
        return self.body

    def _record(self, graph: Graph, folder: Path) -> Recorder:
        backend = recording_backend(self.settings)
        return recorder(self.settings, backend, graph, self.level.store, self.pool, folder)


def whole_samples(
    settings: Settings, graph: Graph, pool: Pool, samples: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[Sample, ...]:
    """Return samples for a model that stays whole, with what a parent of its own is fed in their place.

    Raises UsageError where the two have nothing to do with each other, unless the check runs code of the user's: that
    may need no reference.
    """
    given, parent = settings.model, settings.reference.model
    alone = tuple(Sample(sample) for sample in samples)
    if not samples or settings.target.model or not given or not parent or same_file(given, parent):
        return alone
    try:
        store = Store(folder / "store")
        ingest("reference.model", Path(parent).expanduser().absolute(), store, settings, pool)
        _, feeds = _fed(settings, graph, Graph.load(store.structure), samples, folder)
    except UsageError as error:
        if not settings.checker.runs_own_code:
            raise
        log.info("reference.model: %s", error)
        return alone
    finally:
        shutil.rmtree(folder / "store", ignore_errors=True)
    return tuple(replace(one, reference=fed) for one, fed in zip(alone, feeds, strict=True))


def same_file(one: str, other: str) -> bool:
    """Whether two paths, as the user wrote them, are those of one file."""
    return Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def _fed(
    settings: Settings, graph: Graph, other: Graph, samples: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[dict[str, str], list[Mapping[str, TensorFile]]]:
    """Return the inputs of a model by those of its parent, ``other``, and for each sample what the parent is fed."""
    types, meant = declared(other), inputs_meant(graph)
    inputs = matched_inputs(declared(graph), types, read_map(map_of(settings.reference), graph, other), meant)
    floats = {name: meant[mine] for name, mine in inputs.items() if mine in meant}
    dtypes = {name: one.dtype for name, one in types.items()}
    feeds: list[Mapping[str, TensorFile]] = []
    for number, sample in enumerate(samples):
        named = {name: sample[mine] for name, mine in inputs.items()}
        try:
            feeds.append(cast(named, dtypes, folder / f"feeds{number}", floats))
        except UnfitError as error:
            raise UsageError(
                f"reference.model={settings.reference.model}: its input {error}, so it cannot run on the model's "
                "inputs. Give such that both models can hold: inputs.ranges='{name: [least, largest]}' or inputs=files"
            ) from None
    return inputs, feeds


def _run(
    settings: Settings,
    graph: Graph,
    store: Store,
    pool: Pool,
    folder: Path,
    samples: Sequence[Mapping[str, TensorFile]],
) -> Recorded:
    """Run a graph of the child's, on the reference if it is at home in the same installation, else on the target.

    What the one cannot run is given to the other.
    """
    sides: list[BackendSettings] = [recording_backend(settings), settings.target]
    if not settings.target.holds_inner_values:
        sides.pop()
    elif settings.reference.python != settings.target.python:
        sides.reverse()
    first = recorder(settings, sides[0], graph, store, pool, folder / "first").record(samples)
    if not first.unrunnable or sides[0].to_json() == sides[-1].to_json():
        return first
    left = [node.index for node in graph.nodes if any(not set(node.outputs) <= one.keys() for one in first.values)]
    second = recorder(settings, sides[-1], graph, store, pool, folder / "second").record(first.values, left)
    return replace(second, seconds=first.seconds + second.seconds)


def _error(outputs: Sequence[str], child: Recorded, found: ParentValues, rules: Rules) -> float:
    """Return how wrong the worst output of a child is where all its tensors are shown, in tolerances."""
    differences = (
        compare_recorded(mine[name], good[name], rule)
        for mine, good in zip(child.values, found.values, strict=True)
        for name in outputs
        if name in found.partners and name in mine and name in good
        for rule in rules.of_output(name)
    )
    return max((math.inf if one.kind not in ("", "mismatch") else one.rank()[1] for one in differences), default=0.0)


def _digest(sha256: str, found: ParentValues) -> str:
    pairs = sorted((name, one.tensor) for name, one in found.partners.items())
    return hashlib.sha256(json.dumps([sha256, pairs]).encode()).hexdigest()


def _origins(graph: Graph, other: Graph, found: ParentValues) -> dict[str, str]:
    """Return the parent's node by the child's that makes the same."""
    makers = {
        node.name: other.producers.get(found.partners[name].tensor)
        for node in reversed(graph.nodes)
        for name in reversed(node.outputs)
        if name in found.partners
    }
    return {name: other.nodes[index].name for name, index in makers.items() if index is not None}


def _passes(mine: TensorFile, good: TensorFile, rules: Rules) -> bool:
    """Whether a value passes the check against a good one, also beside a mask, which hides any difference."""
    known = rules.of_output(good.name)
    if any(compare_recorded(mine, good, one).fails() for one in known):
        return False
    left = None if good.structure else beside_mask(recorded.read(good))
    if left is None:
        return True
    both = recorded.read(mine)[left], recorded.read(good)[left]
    return not any(metrics.compare(*both, one).fails() for one in known)


def _said(settings: Settings, graph: Graph, other: Graph, found: ParentValues, opened: str) -> tuple[str, ...]:
    """Say how the tensors were matched: in the log, and as a warning where one has no partner."""
    given, cuts = map_of(settings.reference), not isinstance(settings.strategy, PrecisionSettings)
    quantizer = isinstance(given, str) and Path(given).name == PARTNERS  # which gave the map
    counts = Counter(one.how for one in found.partners.values())
    parts = [
        f"{counts[how]} by {'the quantizer' if quantizer and how is How.map else how.value}"
        for how in How
        if counts[how]
    ]
    paired = len(found.partners)
    every, how = paired + len(found.alone), ", ".join(parts)
    text = f"{paired} of {every} tensors have a partner in the original ({how})"
    inside = _inside_quantized(graph, frozenset(found.alone))
    if alone := [name for name in found.alone if name not in inside]:
        have = "has" if len(alone) == 1 else "have"
        text = f"{len(alone)} of {every} tensors {have} no partner in the original: {listed(alone)}. The others: {how}"
    if nodes := [name for name in _wrong(graph, found) if name.startswith(opened)]:
        some = " inside" * bool(opened) + ", or some of them," * (not {*nodes} <= {*found.wrong})
        log.info("with right inputs, these nodes%s compute something else than the original: %s", some, listed(nodes))
    said = []
    if cuts and alone:
        said.append(text)
    else:
        log.info("%s", text)
    why = {**found.unfit, **{name: f"{one.type} has too few digits for {name}" for name, one in found.narrow.items()}}
    unfit = [name for name in graph.producers if cuts and name in why and name not in inside]
    known = [name for name in unfit if name in found.partners and name not in found.narrow]
    if known:  # what makes it is judged by it, though nobody is fed it
        said.append(f"the nodes after {listed(known)} are judged only with those before: {why[known[0]]}")
    if unfit := [name for name in unfit if name not in known]:
        said.append(f"the nodes before and after {listed(unfit)} are judged together: {why[unfit[0]]}")
    if missing := [name for name in graph.outputs if name not in found.partners]:
        outputs, are, them = ("outputs", "are", "them") if len(missing) > 1 else ("output", "is", "it")
        said.append(f"the {outputs} {listed(missing)} {are}{UNJUDGED} {them}")
    return (*said, *_in_another_order(graph, other, found))


def _in_another_order(graph: Graph, other: Graph, found: ParentValues) -> tuple[str, ...]:
    """Say so where outputs under other names hold what the original's outputs at other places do."""
    held = [found.partners[name].tensor for name in graph.outputs if name in found.partners]
    renamed = not set(graph.outputs) & set(other.outputs)
    if not renamed or held == [*other.outputs] or sorted(held) != sorted(other.outputs):
        return ()
    pairs = listed([f"{mine} holds {theirs}" for mine, theirs in zip(graph.outputs, held, strict=True)])
    return (f"the outputs stand in another order than in the original: {pairs}. Who reads them by place gets others",)


def _wrong(graph: Graph, found: ParentValues) -> list[str]:
    """Return the nodes that are not right on good values, with those before them that they cannot be told from."""
    unknown, read, wrong = found.unfit.keys() - found.partners.keys(), set[str](), list[str]()
    for node in reversed(graph.nodes):
        if node.name in found.wrong or not read.isdisjoint(node.outputs):
            read |= unknown.intersection(node.inputs)
            wrong.append(node.name)
    return wrong[::-1]


def _inside_quantized(graph: Graph, alone: Collection[str]) -> frozenset[str]:
    """Return the tensors without a partner on the way through quantized nodes to tensors that have one.

    The integers of a Q/DQ pair, or what a MatMulInteger makes, until it is scaled.
    """
    begun = set[str]()
    for node in graph.nodes:
        computed = [name for name in node.inputs if name in graph.producers]
        if QUANTIZING.search(node.op_type) or (computed and begun.issuperset(computed)):
            begun |= {name for name in node.outputs if name in alone}
    found = set[str]()
    for node in reversed(graph.nodes):
        for name in begun.intersection(node.outputs):
            made = graph.made_of(name)
            found |= {name} if made and all(out in found or out not in alone for out in made) else set()
    return frozenset(found)
