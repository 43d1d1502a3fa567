"""Random models with a planted fault: how often is the answer right, and how often is a wrong one called proven?

    python -m benchmarks.random_faults [--seeds 1000] [--first 0] [--real 0] [--out DIR]

The search, the refinement and the proof are Winnow's own; the target is simulated, so that a model takes a few
milliseconds. This file says what is planted and which answers are right. Each cell has two figures: the first and the
second half of the seeds, of which the second is not to be looked at while anything is changed. Rows of one kind
overlap: a model with noise and dead nodes is in both. Checks: median, 90th percentile.

``--real N``: the first N seeds are run through the product as well, with a check that stands in for the target (odd
seeds without a measure); what is said there has to be what was simulated.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import onnx
from onnx import TypeProto, checker

from benchmarks import ROOT, measured_with, result_folder, winnow
from benchmarks.random_graphs import (
    TOLERANCE,
    Judged,
    RandomModel,
    Rules,
    Samples,
    Target,
    UnfitError,
    Wrong,
    fused,
    random_model,
)
from runner.engine.session_question import Cause
from runner.jobs.reduce.prove_cause import Prover
from runner.jobs.reduce.refinements import hidden_by
from runner.jobs.reduce.run import first_end
from runner.judgment import ERROR, TOLERANCES, CauseStatus, Experiment, Scale
from runner.model.graph.cut import depends_on
from runner.model.graph.graph_index import needed
from runner.schema.installed_choices import SEARCHES
from runner.schema.strategy import ReduceSettings
from runner.verdict import Signature
from strategies.minimal import claim, sweep
from strategies.search import Answer, Claim, Done, Options, Outcome, Search, Space, Step, Trial

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
    graph, planted = target.graph, frozenset().union(*units)
    wrong = rules.wrong(graph.nodes, graph.output_set, made.constant)
    noisy = {node.index for node in graph.nodes if node.name in rules.kernels} - planted
    if {node.index for node in graph.nodes if node.outputs[0] in wrong} - noisy != {max(unit) for unit in units}:
        raise UnfitError("what is planted is not what is wrong")
    return Case(seed, features, made, rules, units)


def _weaker(rules: Rules, share: float) -> Rules:
    kernels = {name: Wrong(one.slope * share) for name, one in rules.kernels.items()}
    return replace(rules, kernels=kernels, fused=Wrong(rules.fused.slope * share) if rules.fused else None)


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
    possible = set(_candidates(target))
    alike = [places for places in by_operator.values() if possible.issuperset(places)]
    fits = [places for places in alike if (len(places) > 1) is features.repeated]
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
        second = kernels[nodes[1].name]
        kernels[nodes[1].name] = replace(second, slope=second.slope * effects[0] / effects[1])
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
    groups = [[index] for index in possible[:8]]
    if random.random() < 0.3 and possible:  # a kernel that rounds
        operator = graph.nodes[possible[0]].op_type
        groups = [[node.index for node in graph.nodes if node.op_type == operator and node.index not in planted]]
    found: dict[str, Wrong] = {}
    wanted = random.randint(1, 4)
    for group in groups:
        slope = TOLERANCE * random.uniform(*LOCAL) * random.choice([1, -1])
        more = found | {graph.nodes[index].name: Wrong(slope) for index in group}
        wrong = {node.outputs[0]: more[node.name] for node in graph.nodes if node.name in more}
        if _error(target, wrong) < QUIET:
            found = more
        if len(found) >= wanted:
            break
    if not found:
        raise UnfitError("no noise that the outputs do not show")
    return found


FAILURE = Signature("check", "exit 1")
"""How a command says that a model fails; `checker=python` says the same in another way."""
DEFAULTS = ReduceSettings(name="reduce", search="reduce", subject="subgraph")


@dataclass(frozen=True)
class Judging:
    """What a check tells. ``measures``: how bad a failure is, too. ``samples``: of which of several samples.

    ``known``: it counts in tolerances, as comparisons of Winnow's own do.
    """

    name: str
    measures: bool
    samples: Samples = "worst"
    known: bool = False


VERDICTS = Judging("verdict only", measures=False)
COMMAND = Judging("with a measure, of the first sample that fails", measures=True, samples="first")
MEASURES = Judging("with a measure in tolerances, of the worst sample", measures=True, known=True)
JUDGINGS = (VERDICTS, COMMAND, MEASURES)


@dataclass
class Simulation:
    """The model of a case, as a search and a proof ask about it; see `splice_experiments`.

    ``checks``: what was paid for, by purpose.
    """

    case: Case
    judging: Judging
    checks: dict[str, int] = field(default_factory=lambda: {"search": 0, "refine": 0, "cause": 0, "trust": 0})
    compares: bool = False
    about_values: bool = True
    _known: dict[tuple[str, Trial], Judged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._target = Target(self.case.made, self.case.rules, self.judging.samples)
        self.graph = self._target.graph
        self.space = Space(tuple(range(len(self.graph.nodes))), self.graph.parents)
        self._known["cut", self.space.whole] = self._target.cut(self.space.order)  # the pre-flight pays for it
        self.whole = self.failure = self._experiment(self._known["cut", self.space.whole])
        self.healed = frozenset[int]()

    @property
    def scale(self) -> Scale:
        """How measures are read: of our own comparison it is known where a model passes."""
        return TOLERANCES if self.judging.known else ERROR

    def types(self) -> Mapping[str, TypeProto]:
        """Return the types of all tensors."""
        return self.case.made.types

    def spent(self) -> bool:
        """Return that there is no budget."""
        return False

    def ahead(self, asked: Sequence[tuple[Trial, str]]) -> None:
        """Do nothing: there is one worker."""

    @property
    def spliced(self) -> None:
        """Nothing judges experiments but the target."""

    fitting = spliced

    def asked(self, _judge: None, trial: Trial, _label: str) -> Experiment:
        """Splice good values in."""
        return self._experiment(self.judge("splice", trial, "cause"))

    def fenced(self, kept: Trial, parts: Sequence[Trial], label: str) -> Experiment:
        """Splice good values in, and put fences around parts."""
        self.checks["trust"] += 1
        return self._experiment(self._target.splice(kept.elements, [part.elements for part in parts]))

    def no_good(self, tensor: str, reader: int, among: Trial) -> bool:
        """Return that each tensor has a good value that fits into its type."""
        return False

    def looks_at_nodes(self, answer: Trial) -> bool:
        """Return that the target is judged by values."""
        return False

    def alone(self, kept: Trial) -> bool:
        """Judge a part of it."""
        return self.judge("cut", kept, "cause").fails

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Search among some elements, if what is cut out of them fails."""
        if not self.judge("cut", Trial.of(order), "cause").fails:
            return None, 0
        found = self.searched(replace(self.space, order=order), self.first, "cause", most)
        done = found.done
        assert done
        return None if done.claim is Claim.BUDGET else done.trial, len(found.asked)

    def found_within(self, nodes: Trial, answer: Trial) -> None:
        """Do nothing: no answer is handed over."""

    def first(self, space: Space) -> Step:
        """Return the first step of the default search."""
        first = first_end(DEFAULTS.first, FAILURE, good=True)
        return SEARCHES[DEFAULTS.search].begin(space, Options(extra_checks=DEFAULTS.extra_checks, first=first))

    def searched(
        self, space: Space, first: Callable[[Space], Step], purpose: str, most: float = float("inf"), how: str = "cut"
    ) -> Search:
        """Ask until a search is done, or so many questions were answered; the whole of ``space`` fails."""
        search, answered = Search(space, first(space), {space.whole: Answer.YES}), 0
        while not search.done:
            if answered >= most:
                search.stop()
                break
            (question,) = search.ask(1)
            fails = self.judge(how, question.trial, purpose).fails
            search.tell(question.trial, Answer.YES if fails else Answer.NO)
            answered += 1
        return search

    def judge(self, how: str, trial: Trial, purpose: str) -> Judged:
        """Return what the check says of a candidate; it is paid for once."""
        key = how, trial
        if key not in self._known:
            self.checks[purpose] += 1
            told = self._target.splice(trial.elements) if how == "splice" else None
            self._known[key] = told or self._target.cut(trial.elements, "sinks" if how == "sinks" else "frontier")
        return self._known[key]

    def _experiment(self, told: Judged) -> Experiment:
        measure = told.measure if self.judging.measures else None
        return Experiment(Outcome.FAIL if told.fails else Outcome.PASS, measure)


@dataclass(frozen=True)
class Solved:
    """What came out. ``done``: the end of the search; ``first``: the answer that the experiments began with."""

    case: Case
    done: Done
    first: Trial
    cause: Cause
    checks: Mapping[str, int]

    @property
    def answer(self) -> frozenset[int]:
        """All nodes that are named as the cause, or as what fails alone."""
        if self.cause.status is CauseStatus.JOINT:
            return frozenset().union(*(self.cause.answers[at].answer.elements for at in self.cause.causes))
        return self.cause.answers[self.cause.main].answer.elements

    @property
    def proven(self) -> bool:
        """Whether it is said to be the cause."""
        return self.cause.status in (CauseStatus.PROVEN, CauseStatus.JOINT)

    @property
    def right(self) -> bool:
        """Whether it is right."""
        return self.case.right(self.answer)


def solve(case: Case, judging: Judging = MEASURES) -> Solved:
    """Search and prove."""
    model = Simulation(case, judging)
    assert model.whole.outcome is Outcome.FAIL
    search = model.searched(model.space, model.first, "search")
    done = search.done
    assert done and done.trial
    first = refined(model, done.trial)
    cause = Prover(model, model.checks["search"], DEFAULTS.cause_checks).prove(first)
    return Solved(case, done, first, cause, dict(model.checks))


def refined(model: Simulation, answer: Trial) -> Trial:
    """Leave out nodes that are needed only because without them a tensor becomes an output, which stops a fusion."""
    hiding = hidden_by(model.graph, answer)
    if not hiding or not model.judge("sinks", answer, "refine").fails:
        return answer
    settled = answer.elements - hiding
    space = replace(model.space, order=tuple(answer))
    search = model.searched(
        space, lambda where: sweep(where, where.whole, claim, settled=settled), "refine", how="sinks"
    )
    return search.done.trial if search.done and search.done.trial else answer


CHECK = """from benchmarks.random_graphs import Rules, Wrong, checked


def check(model, inputs, expected):
    return checked({rules!r}, {constant!r}, model, inputs, expected, measures={measures})
"""
OPTIONS = ("strategy.shrink=false", "checker.flaky=never", "result.find_min_good=false", "checker=python")


Told = tuple[str, tuple[str, ...], int, int]
"""The cause's status, the nodes named, checks of the search and for the cause."""


def both(case: Case, folder: Path, judging: Judging = MEASURES) -> tuple[Told, Told]:
    """Simulate a case, run it in a folder, and return what both said. ``judging``: of the worst sample."""
    return simulated(solve(case, judging)), run(case, folder, measures=judging.measures)


def simulated(found: Solved) -> Told:
    """Return what a simulation said."""
    names = found.case.target.graph.names
    named = tuple(names[index] for index in sorted(found.answer))
    return found.cause.status.value, named, found.checks["search"], found.checks["cause"]


def run(case: Case, folder: Path, *, measures: bool) -> Told:
    """Run Winnow on a case, and return what it said."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(case.made.model, folder / "net.onnx")
    (folder / "inputs").mkdir(exist_ok=True)
    for sample in range(case.made.samples):
        given = {name: value[sample] for name, value in case.made.inputs.items()}
        np.savez(folder / "inputs" / f"sample{sample}.npz", **given)
    check = CHECK.format(rules=case.rules, constant=case.made.constant, measures=measures)
    (folder / "check.py").write_text(check)
    given = (f"model={folder / 'net.onnx'}", "inputs=files", f"inputs.path={folder / 'inputs'}")
    words = (*given, *OPTIONS, f"checker.file={folder / 'check.py'}")
    done, result = winnow(folder / "run", *words, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    if done.returncode:
        raise RuntimeError(f"seed {case.seed}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    cause, checks = result["cause"], result["checks"]
    named = set(result["culprits"])
    if cause["status"] == "joint":
        named = {name for one in cause["answers"] if one["is_cause"] for name in one["culprits"]}
    order = [node.name for node in case.made.model.graph.node]
    return cause["status"], tuple(sorted(named, key=order.index)), checks["search"] + checks["refine"], checks["cause"]


HEAD = ("fault", "models", "right", "right, proven", "wrong", "WRONG, PROVEN", "search checks", "cause checks")


@dataclass(frozen=True)
class Row:
    """What came out of one model. ``divided``: no part of the fault makes the model fail by itself."""

    seed: int
    features: Features
    divided: bool
    right: bool
    proven: bool
    search: int
    cause: int

    @staticmethod
    def of(found: Solved) -> Row:
        """Return what is told of a model."""
        case, checks = found.case, found.checks
        search = checks["search"] + checks["refine"]
        return Row(case.seed, case.features, not case.enough, found.right, found.proven, search, checks["cause"])


def rows_of(seed: int) -> tuple[int, tuple[Row, ...]]:
    """Return how many models were rejected, and what came out of the one that was not, by what the check tells."""
    try:
        case = case_of(seed)
    except UnfitError:
        return 0, ()
    return case.rejected, tuple(Row.of(solve(case, judging)) for judging in JUDGINGS)


GROUPS: dict[str, Callable[[Row], bool]] = {
    "": lambda row: True,
    ", no noise": lambda row: not row.features.noise,
    ", noise": lambda row: row.features.noise,
    ", several samples": lambda row: row.features.samples > 1,
    ", of which some pass": lambda row: row.features.part,
    ", dead nodes": lambda row: row.features.dead,
    ", repeated pattern": lambda row: row.features.repeated,
    ", no part is enough": lambda row: row.divided,
}


def table(rows: Sequence[Row], middle: int) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for kind in (*Kind, None):
        for said, group in GROUPS.items():
            some = [row for row in rows if kind in (row.features.kind, None) and group(row)]
            halves = [row for row in some if row.seed < middle], [row for row in some if row.seed >= middle]
            cells = zip(*map(_cells, halves), strict=True)
            name = f"{kind.value if kind else 'any'}{said}"
            yield f"| {name} | {' | '.join('; '.join(pair) for pair in cells)} |"


def _cells(rows: Sequence[Row]) -> list[str]:
    proven = [row.right for row in rows if row.proven]
    right = sum(row.right for row in rows)
    counts = [len(rows), right, sum(proven), len(rows) - right, len(proven) - sum(proven)]
    checks = [[row.search for row in rows], [row.cause for row in rows]]
    shown = (f"{np.median(one):g}, {np.percentile(one, 90):.0f}" if one else "-" for one in checks)
    return [*map(str, counts), *shown]


def simulations(first: int, seeds: int) -> Iterator[str]:
    """Yield the tables, by what the check tells."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(rows_of, range(first, first + seeds), chunksize=20))
    made = [rows for _, rows in found if rows]
    yield f"seeds {first} to {first + seeds - 1}: {len(made)} models; {sum(count for count, _ in found)} were rejected."
    for at, judging in enumerate(JUDGINGS):
        yield f"\n## checks {judging.name}\n"
        yield from table([rows[at] for rows in made], first + seeds // 2)


def product(first: int, count: int, folder: Path) -> Iterator[str]:
    """Yield a line for each seed: what was simulated, and what a run says."""
    agree = 0
    with ThreadPoolExecutor(2) as pool:
        for seed, (said, ran) in enumerate(pool.map(partial(_both, folder=folder), range(first, first + count)), first):
            agree += said == ran
            yield f"seed {seed}: {_said(said)}" + ("" if said == ran else f"; THE RUN: {_said(ran)}")
    yield f"{agree} of {count} runs say what was simulated, after as many checks"


def _both(seed: int, folder: Path) -> tuple[Told, Told]:
    return both(case_of(seed), folder / str(seed), VERDICTS if seed % 2 else MEASURES)


def _said(told: Told) -> str:
    status, nodes, search, cause = told
    return f"{', '.join(nodes)} ({status}; {search} search, {cause} cause)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="run the first N seeds, and nothing else")
    parser.add_argument("--out", type=Path, help="else benchmarks/results/DATE-VERSION")
    given = parser.parse_args()
    if given.real:
        with tempfile.TemporaryDirectory() as folder:
            for line in product(given.first, given.real, Path(folder)):
                print(line, flush=True)
        return
    page = [f"# Random faults\n\n{', '.join(map(' '.join, measured_with().items()))}.\n\n"]
    for line in simulations(given.first, given.seeds):
        print(line, flush=True)
        page.append(f"{line}\n")
    out = given.out or result_folder()
    out.mkdir(parents=True, exist_ok=True)
    (out / "random_faults.md").write_text("".join(page))


if __name__ == "__main__":
    main()
