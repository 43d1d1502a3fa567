"""What is planted in a random model, and which answers are right: the truth, which owes nothing to Winnow's rules.

**Units** are what was planted: each node of a wrong kernel, each chain that the target fuses wrongly in the whole
model, each of two far nodes. All units together are beyond twice the tolerance at the model's outputs. (Of several
units one model in four is so that they are just beyond it together, and mostly not by themselves.) Noise is no unit:
nodes that are just over the tolerance on their own tensor, and together below half of it at the outputs.

A unit is **enough** if the whole model fails at its own outputs with this unit wrong and nothing else. An answer is
**right** if all its nodes are of units that lie wholly in it, and

- these units together make the whole model fail, with nothing else wrong; or
- no unit of the model is enough, it is one kernel or one fusion that is wrong, and the answer is one unit among the
  fewest that make the whole model fail together (the kernel is named, and stands several times).

Of a cause that is ``joint`` the answer is what all its parts hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import combinations
from random import Random

from onnx import checker

from benchmarks.random_faults.graphs import RandomModel, UnfitError, random_model
from benchmarks.random_faults.target import TOLERANCE, Rules, Target, Wrong, fused
from runner.model.graph.cut import depends_on
from runner.model.graph.graph_index import needed

LOUD, QUIET = 2.0, 0.5
"""The error at the model's outputs, in tolerances: of the fault alone at least, of the noise alone at most."""
LOCAL = (1.05, 1.6)
"""The error of noise on its own tensor, in tolerances."""
FAULTY = (3.0, 90.0)
"""The same of a fault."""
DIVIDED = (1.1, 1.6)
"""The error at the outputs where the units are to need each other."""
MOST_ATTEMPTS, FAULTS = 200, 4
"""So many models are tried for a seed, each with so many faults."""
_MOST_UNITS = 8


class Kind(str, Enum):
    """What is wrong."""

    KERNEL = "kernel"
    FUSION = "fusion"
    FAR = "far"


@dataclass(frozen=True)
class Features:
    """What a case has. ``part``: some of several samples do not show the fault."""

    kind: Kind
    noise: bool = False
    samples: int = 1
    part: bool = False
    dead: bool = False
    repeated: bool = False

    @staticmethod
    def of(seed: int) -> Features:
        """Return what the case of a seed has."""
        random = Random(f"features {seed}")
        samples = random.choice([1, 1, 1, 2, 3])
        return Features(
            tuple(Kind)[seed % 3],
            noise=random.random() < 0.5,
            samples=samples,
            part=samples > 1 and random.random() < 0.7,
            dead=random.random() < 0.35,
            repeated=random.random() < 0.4,
        )


@dataclass(frozen=True, eq=False)
class Case:
    """A model with a fault. ``rejected``: how many random ones had not the properties that were asked for."""

    seed: int
    features: Features
    made: RandomModel
    rules: Rules
    units: tuple[frozenset[int], ...]
    rejected: int = 0

    @cached_property
    def target(self) -> Target:
        """The target, which speaks of the worst sample."""
        return Target(self.made, self.rules)

    @cached_property
    def enough(self) -> tuple[frozenset[int], ...]:
        """The units that make the whole model fail by themselves."""
        return tuple(unit for unit in self.units if self._fail([unit]))

    @cached_property
    def fewest(self) -> tuple[tuple[frozenset[int], ...], ...]:
        """The smallest sets of units that make the whole model fail together."""
        for size in range(1, len(self.units) + 1):
            found = tuple(some for some in combinations(self.units, size) if self._fail(some))
            if found:
                return found
        return ()

    def right(self, answer: Collection[int]) -> bool:
        """Whether an answer is right; see above."""
        held = [unit for unit in self.units if unit <= set(answer)]
        if not held or frozenset().union(*held) != frozenset(answer):
            return False
        if self._fail(held):
            return True
        one_fault = self.features.kind is not Kind.FAR and not self.enough and len(held) == 1
        return one_fault and any(held[0] in some for some in self.fewest)

    def _fail(self, units: Iterable[frozenset[int]]) -> bool:
        return _error(self.target, _ends(self.target, self.rules, units)) > 1


def _ends(target: Target, rules: Rules, units: Iterable[frozenset[int]]) -> dict[str, Wrong]:
    """Return how the whole model is wrong by some units only."""
    found = {}
    for unit in units:
        last = target.graph.nodes[max(unit)]
        wrong = rules.kernels.get(last.name, rules.fused)
        assert wrong
        found[last.outputs[0]] = wrong
    return found


def _error(target: Target, wrong: dict[str, Wrong]) -> float:
    every = range(len(target.graph.nodes))
    return float(target.errors(every, target.graph.outputs, wrong).max())


def case_of(seed: int, features: Features | None = None) -> Case:
    """Return the case of a seed. Raises UnfitError if no attempt gives one."""
    features, rejected = features or Features.of(seed), 0
    for attempt in range(MOST_ATTEMPTS):
        random = Random(f"{seed} {attempt}")
        try:
            made = random_model(random, samples=features.samples, dead=features.dead, repeated=features.repeated)
        except UnfitError:
            rejected += 1
            continue
        for _ in range(FAULTS):
            try:
                found = _case(seed, features, random, made)
            except UnfitError:  # noqa: PERF203 - most are
                rejected += 1
            else:
                checker.check_model(made.model)
                return replace(found, rejected=rejected)
    raise UnfitError(f"seed {seed}: {rejected} were rejected, and none has {features}")


def cases(seeds: Iterable[int]) -> Iterator[Case]:
    """Yield the cases of seeds; a seed that gives none is left out."""
    for seed in seeds:
        try:
            yield case_of(seed)
        except UnfitError:  # noqa: PERF203 - it is rare
            continue


def _case(seed: int, features: Features, random: Random, made: RandomModel) -> Case:
    target = Target(made)
    rules, units = _PLANTED[features.kind](random, target, features)
    if len(units) > _MOST_UNITS:
        raise UnfitError("too many places")
    loud, size = LOUD, _error(target, _ends(target, rules, units))
    if size and len(units) > 1 and not features.part and random.random() < 0.25:
        share = random.uniform(*DIVIDED) / size
        rules, loud = _weaker(rules, share), DIVIDED[0] - 0.05
    every = range(len(target.graph.nodes))
    alone = target.errors(every, target.graph.outputs, _ends(target, rules, units))
    if alone.max() < loud:
        raise UnfitError("the fault does not show")
    if features.part and alone.min() > QUIET:
        raise UnfitError("every sample shows the fault")
    if features.noise:
        rules = replace(rules, kernels={**rules.kernels, **_noise(random, target, frozenset().union(*units))})
    if not Target(made, rules).cut(every).fails:
        raise UnfitError("noise and fault cancel out")
    case = Case(seed, features, made, rules, units)
    if {node.index for node in target.graph.nodes if node.outputs[0] in _whole_wrong(case)} - _noisy(case) != {
        max(unit) for unit in units
    }:
        raise UnfitError("what is planted is not what is wrong")
    return case


def _weaker(rules: Rules, share: float) -> Rules:
    kernels = {name: Wrong(one.slope * share) for name, one in rules.kernels.items()}
    return replace(rules, kernels=kernels, fused=Wrong(rules.fused.slope * share) if rules.fused else None)


def _whole_wrong(case: Case) -> dict[str, Wrong]:
    graph = case.target.graph
    return case.rules.wrong(graph.nodes, graph.output_set, case.made.constant)


def _noisy(case: Case) -> set[int]:
    planted = frozenset().union(*case.units)
    graph = case.target.graph
    return {node.index for node in graph.nodes if node.name in case.rules.kernels and node.index not in planted}


# ---- faults


def _wrong(random: Random, target: Target, name: str, features: Features) -> Wrong:
    """Draw how a node is wrong; where only some samples are to show it, by what the others do not reach."""
    size = TOLERANCE * FAULTY[0] * (FAULTY[1] / FAULTY[0]) ** random.random()
    slope = size if random.random() < 0.6 else -min(size, 0.9)
    if not features.part:
        return Wrong(slope)
    tops = sorted(float(one.max()) for one in target.made.good[name])
    limit = tops[random.randrange(len(tops) - 1)]
    return Wrong(random.choice([-0.9, 1.0, 4.0]), limit)


def _candidates(target: Target) -> list[int]:
    return [node.index for node in target.graph.nodes if node.outputs[0] not in target.made.constant]


def _kernel(random: Random, target: Target, features: Features) -> tuple[Rules, tuple[frozenset[int], ...]]:
    """Every node of one operator."""
    graph = target.graph
    by_operator: dict[str, list[int]] = {}
    for node in graph.nodes:
        by_operator.setdefault(node.op_type, []).append(node.index)
    possible = _candidates(target)
    fits = [
        places
        for places in by_operator.values()
        if (len(places) > 1) is features.repeated and set(places).issubset(possible)
    ]
    if not fits:
        raise UnfitError("no such operator")
    places = random.choice(fits)
    wrong = _wrong(random, target, graph.nodes[random.choice(places)].outputs[0], features)
    kernels = {graph.nodes[index].name: wrong for index in places}
    return Rules(kernels), tuple(frozenset([index]) for index in places)


def _fusion(random: Random, target: Target, features: Features) -> tuple[Rules, tuple[frozenset[int], ...]]:
    """Every chain of two to four operators that can be fused in the whole model."""
    graph, possible = target.graph, set(_candidates(target))
    size, chain = random.randint(2, 4), [random.choice(sorted(possible))]
    while len(chain) < size:
        name = graph.nodes[chain[-1]].outputs[0]
        after = graph.readers.get(name, ())
        if name in graph.output_set or len(set(after)) != 1:
            raise UnfitError("no chain that is fused")
        chain.append(after[0])
    operators = tuple(graph.nodes[index].op_type for index in chain)
    paths = [index for path in _paths(target, operators) for index in path]
    if len(paths) > len(set(paths)):  # which of them is fused would depend on what a candidate holds
        raise UnfitError("the pattern overlaps itself")
    rules = Rules({}, operators, _wrong(random, target, graph.nodes[chain[-1]].outputs[0], features))
    chains = fused(operators, graph.nodes, graph.output_set, target.made.constant)
    units = tuple(frozenset(node.index for node in one) for one in chains)
    if (len(units) > 1) is not features.repeated or not possible.issuperset(frozenset().union(*units)):
        raise UnfitError("it stands too often, or not often enough")
    return rules, units


def _paths(target: Target, operators: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Return all paths of these operators, whoever else reads on the way."""
    graph = target.graph
    found = [(node.index,) for node in graph.nodes if node.op_type == operators[0]]
    for operator in operators[1:]:
        found = [
            (*path, reader)
            for path in found
            for reader in graph.readers.get(graph.nodes[path[-1]].outputs[0], ())
            if graph.nodes[reader].op_type == operator
        ]
    return found


def _far(random: Random, target: Target, features: Features) -> tuple[Rules, tuple[frozenset[int], ...]]:
    """Two nodes of different operators, more than two edges apart."""
    graph = target.graph
    one, other = random.sample(_candidates(target), 2)
    nodes = graph.nodes[one], graph.nodes[other]

    def near(index: int) -> set[int]:
        below = {reader for name in graph.nodes[index].outputs for reader in graph.readers.get(name, ())}
        return {index, *graph.parents[index], *below}

    if nodes[0].op_type == nodes[1].op_type or not near(one).isdisjoint(near(other)):
        raise UnfitError("too near")
    kernels = {node.name: _wrong(random, target, node.outputs[0], features) for node in nodes}
    units = (frozenset([one]), frozenset([other]))
    effects = [_error(target, {node.outputs[0]: kernels[node.name]}) for node in nodes]
    if min(effects) < QUIET:
        raise UnfitError("one of them does not show")
    if random.random() < 0.3:  # as large as the other
        kernels[nodes[1].name] = replace(
            kernels[nodes[1].name], slope=kernels[nodes[1].name].slope * effects[0] / effects[1]
        )
    return Rules(kernels), units


_PLANTED = {Kind.KERNEL: _kernel, Kind.FUSION: _fusion, Kind.FAR: _far}


# ---- noise


def _noise(random: Random, target: Target, planted: frozenset[int]) -> dict[str, Wrong]:
    """Nodes that are over the tolerance on their own tensor, and all together below it at the model's outputs."""
    graph = target.graph
    above, below = needed(graph, planted) - planted, depends_on(graph, planted) - planted
    beside = set(range(len(graph.nodes))) - above - below - planted
    where = random.choice([above, below, beside, above | below | beside])
    possible = [index for index in _candidates(target) if index in where]
    random.shuffle(possible)
    if random.random() < 0.3 and possible:  # a kernel that rounds
        operator = graph.nodes[possible[0]].op_type
        groups = [[node.index for node in graph.nodes if node.op_type == operator and node.index not in planted]]
    else:
        groups = [[index] for index in possible[:8]]
    found: dict[str, Wrong] = {}
    wanted = random.randint(1, 4)
    for group in groups:
        slope = TOLERANCE * random.uniform(*LOCAL) * random.choice([1, -1])
        more = found | {graph.nodes[index].name: Wrong(slope) for index in group}
        wrong = {graph.nodes[index].outputs[0]: more[graph.nodes[index].name] for index in range(len(graph.nodes))
                 if graph.nodes[index].name in more}  # fmt: skip
        if _error(target, wrong) < QUIET:
            found = more
        if len(found) >= wanted:
            break
    if not found:
        raise UnfitError("no noise that the outputs do not show")
    return found
