"""Where faults and noise are planted, so that the model has the properties that are wanted; they are verified here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from onnx import ModelProto

from benchmarks.planted_conversion import ATTRIBUTES, STRENGTHS, Conversion
from benchmarks.planted_models import HEALTHY, LOCAL, LOUD, SEEDS, Planted, Spec, UnfitError, alone, outputs, worst
from benchmarks.planted_networks import Evaluator


def places(conversion: Conversion, kind: str) -> list[str]:
    """Where a fault of a kind may be planted."""
    nodes = conversion.parent.graph.node
    if kind in ATTRIBUTES:
        return [f"#{node.output[0]}" for node in nodes if node.op_type == ATTRIBUTES[kind]]
    if kind in ("weight", "weight scale"):
        held = {one.name for one in conversion.parent.graph.initializer}
        kinds = ("Conv", "MatMul", "ConvTranspose")
        return [node.input[1] for node in nodes if node.op_type in kinds and node.input[1] in held]
    return conversion.sites


def culprits(spec: Spec, child: ModelProto, place: str, kind: str) -> frozenset[str]:
    """Return the nodes of what is planted."""
    if place.startswith("#"):
        return frozenset(
            {
                next(
                    node.name
                    for node in child.graph.node
                    if place[1:] in [o.removesuffix("_half") for o in node.output]
                )
            }
        )
    if kind in ("weight", "weight scale"):
        if spec.dtype == "qdq":
            return frozenset({f"{place}_DequantizeLinear"})
        return frozenset({next(node.name for node in child.graph.node if place in node.input)})
    if spec.dtype == "qdq":
        return frozenset({f"{place}_QuantizeLinear", f"{place}_DequantizeLinear"})
    steps = {"cancel": (1, 2), "overflow": (0, 1, 2, 3)}[kind]
    return frozenset(f"/{place}_{kind}{step}" for step in steps)


class Order:
    """What lies above and below in the child."""

    def __init__(self, model: ModelProto) -> None:
        self.maker = {name: node for node in model.graph.node for name in node.output}
        self.nodes = list(model.graph.node)
        self.ends = outputs(model)

    def below(self, names: Collection[str], without: Collection[str] = ()) -> frozenset[str]:
        """Return the nodes that depend on some, these included, when others are gone."""
        found: set[str] = set(names)
        tensors = {name for node in self.nodes if node.name in found for name in node.output}
        for node in self.nodes:
            if node.name not in without and not tensors.isdisjoint(node.input):
                found.add(node.name)
                tensors.update(node.output)
        return frozenset(found)

    def above(self, names: Collection[str]) -> frozenset[str]:
        """Return the nodes that some depend on, these included."""
        found: set[str] = set()
        waiting = [node for node in self.nodes if node.name in names]
        while waiting:
            node = waiting.pop()
            if node.name not in found:
                found.add(node.name)
                waiting += [self.maker[name] for name in node.input if name in self.maker]
        return frozenset(found)

    def reaches_end(self, names: Collection[str], without: Collection[str] = ()) -> bool:
        """Whether an output depends on some nodes when others are gone."""
        return any(self.maker[end].name in self.below(names, without) for end in self.ends)

    def relation(self, noise: frozenset[str], fault: frozenset[str]) -> str:
        """Return where noise stands, seen from a fault."""
        if noise & self.below(fault):
            return "after" if self.reaches_end(fault, noise) else "only after"
        if noise & self.above(fault):
            roots = [node.name for node in self.nodes if not any(name in self.maker for name in node.input)]
            free = self.below(set(roots) - noise, noise)
            fed = [name for name in fault if name in free] if roots else []
            weights = {one for one in roots if one.endswith("_DequantizeLinear")}
            if not fed or (fed and not (set(fed) & self.below(set(roots) - weights - noise, noise))):
                return "only before"
            return "before"
        return "beside"


def plant(spec: Spec, seed: int, evaluator: Evaluator) -> Planted:
    """Return a model with what is wanted planted in it. Raises UnfitError."""
    conversion = Conversion(spec, seed, evaluator)
    draw = conversion.draw
    clean = conversion.made({})
    if not 55 <= len(clean.child.graph.node) <= 300:
        raise UnfitError(f"{len(clean.child.graph.node)} nodes")
    if error_of(clean, evaluator) > HEALTHY * 0.8:
        raise UnfitError("the conversion alone is not good enough")
    faults = _faults(conversion, evaluator)
    order = Order(conversion.made(faults).child)
    sets = [culprits(spec, conversion.made(faults).child, place, kind) for place, (kind, _) in faults.items()]
    kind = "coarse" if spec.dtype == "qdq" else "cancel"
    wanted = {"both": ("before", "after"), "many both": ("before", "after")}.get(
        spec.where, (spec.where.removeprefix("many "),)
    )
    sites = [site for site in conversion.sites if site not in faults]
    draw.shuffle(sites)
    if spec.where.startswith("many"):
        operators = {node.output[0]: node.op_type for node in conversion.parent.graph.node}
        common = [one for one in operators.values() if one not in ("Concat", "Sigmoid")]
        most = sorted({*common}, key=lambda one: (-common.count(one), one))
        chosen = most[int(draw.integers(min(3, len(most))))]
        sites = [site for site in sites if operators[site] == chosen]
    noise: dict[str, tuple[str, float]] = {}
    seen: list[str] = []
    limit = 8 if spec.where.startswith("many") else len(wanted) + int(draw.integers(2))
    for site in sites:
        strength = float(draw.uniform(LOCAL[0] + 0.1, LOCAL[1] - 0.05))
        trial = {**noise, site: (kind, strength)}
        both = conversion.made(trial | faults)
        nodes = culprits(spec, both.child, site, kind)
        # where a site has a fault as well as noise, or stands in a chain of the fault's, it is neither
        relations = {Order(both.child).relation(nodes, one) for one in sets}
        base = {one.removeprefix("only ") for one in relations} if not spec.where.startswith("only") else relations
        if len(base) != 1 or not base <= set(wanted):
            continue
        relation = base.pop()
        if len(wanted) == 2 and seen.count(relation) > seen.count(wanted[wanted[0] == relation]):
            continue
        local = alone(both, nodes, evaluator)
        if local is None or not LOCAL[0] <= local <= LOCAL[1]:
            continue
        if error_of(conversion.made(trial), evaluator) > HEALTHY:
            continue
        noise, seen = trial, [*seen, relation]
        if len(noise) == limit and set(seen) == set(wanted):
            break
    if set(seen) != set(wanted) or (spec.where.startswith("many") and len(noise) < 3):
        raise UnfitError(f"there is no place for noise {spec.where}")
    del order
    planted = conversion.made(noise | faults)
    planted.faults = sets
    planted.noise = [culprits(spec, planted.child, site, kind) for site in noise]
    _verify(planted, conversion, noise, faults, evaluator)
    return planted


def _verify(planted: Planted, conversion: Conversion, noise: Mapping[str, tuple[str, float]],
            faults: Mapping[str, tuple[str, float]], evaluator: Evaluator) -> None:  # fmt: skip
    planted.error = error_of(planted, evaluator)
    planted.healthy = error_of(conversion.made(noise), evaluator)
    planted.local = [alone(planted, nodes, evaluator) or 0.0 for nodes in planted.noise]
    if not LOUD <= planted.error < 200:
        raise UnfitError("the fault is not loud enough")
    if planted.healthy > HEALTHY:
        raise UnfitError("without the fault it is not healthy")
    if not all(LOCAL[0] <= one <= LOCAL[1] for one in planted.local):
        raise UnfitError("the noise is not just over the tolerance")
    if not 60 <= len(planted.child.graph.node) <= 300:
        raise UnfitError("it is too small, or too large")
    for place in faults:
        if len(faults) > 1:  # each fails at the outputs by itself, and what is left without one fails too
            others = {other: one for other, one in faults.items() if other != place}
            if error_of(conversion.made(noise | others), evaluator) < 2:
                raise UnfitError("a fault can be spared")
            if error_of(conversion.made({**noise, place: faults[place]}), evaluator) < 2:
                raise UnfitError("a fault does not show by itself")
    for nodes in planted.faults:
        if not (error := alone(planted, nodes, evaluator)) or error <= 2:
            raise UnfitError("a fault does not fail alone")


def _faults(conversion: Conversion, evaluator: Evaluator) -> dict[str, tuple[str, float]]:
    """Choose where faults go, and how strong they are, so that they are loud at the outputs."""
    spec, draw = conversion.spec, conversion.draw
    every = spec.fault.startswith("every ")
    kinds = spec.fault.removeprefix("every ").removeprefix("two: ").split(", ")
    found: dict[str, tuple[str, float]] = {}
    for kind in kinds:
        options = [place for place in places(conversion, kind) if place not in found]
        if not options:
            raise UnfitError(f"there is no place for {kind}")
        draw.shuffle(options)
        chosen = options[:3] if every else options[:1]
        for strength in STRENGTHS[kind]:
            trial = dict.fromkeys(chosen, (kind, strength))
            if LOUD * 1.1 <= error_of(conversion.made(trial), evaluator) < 150:
                found |= trial
                break
        else:
            raise UnfitError(f"{kind} is not loud enough")
    return found


def error_of(planted: Planted, evaluator: Evaluator) -> float:
    """Return the error of the whole child at its outputs."""
    with np.errstate(all="ignore"):
        values = evaluator.run(planted.child, planted.feeds)
    return worst(values, planted.good, outputs(planted.child))


def generated(spec: Spec, evaluator: Evaluator) -> Planted:
    """Return the first seed's model that has all properties. Raises UnfitError."""
    reasons = []
    for seed in range(spec.seed, spec.seed + SEEDS):
        try:
            return replace(plant(spec, seed, evaluator), seed=seed)
        except UnfitError as error:  # noqa: PERF203 - most seeds are no good
            reasons.append(str(error))
    raise UnfitError(f"{spec.name}: no seed of {SEEDS}: { ({one: reasons.count(one) for one in reasons}) }")


# ---- runs
