"""What is planted is what is said to be, the simulated target computes right, and the product says what it says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from onnx import helper

from benchmarks import session
from benchmarks.random_faults import (
    DIVIDED,
    HEAD,
    LOUD,
    MEASURES,
    QUIET,
    VERDICTS,
    Case,
    Kind,
    both,
    case_of,
    cases,
    rows_of,
    table,
)
from benchmarks.random_graphs import KERNELS, LARGEST, Rules, Target, Wrong, fused, judged
from runner.model.graph.graph_index import Graph
from tests.matrix import sample


@cache
def first_cases() -> tuple[Case, ...]:
    """The first cases, made when a test asks for them."""
    return tuple(cases(range(90)))


def errors(case: Case, names: set[str]) -> np.ndarray:
    """The errors of the whole model with only some nodes wrong."""
    graph = case.target.graph
    wrong = case.rules.wrong(graph.nodes, graph.output_set, case.made.constant)
    chosen = {name: one for name, one in wrong.items() if graph.nodes[graph.producers[name]].name in names}
    return case.target.errors(range(len(graph.nodes)), graph.outputs, chosen)


def test_what_is_planted_shows_and_noise_does_not() -> None:
    for case in first_cases():
        graph = case.target.graph
        planted = {graph.names[index] for unit in case.units for index in unit}
        noise = set(case.rules.kernels) - planted
        assert bool(noise) is case.features.noise and errors(case, noise).max() < QUIET
        shown = errors(case, planted)
        divided = len(case.units) > 1 and not case.features.part
        assert shown.max() > (DIVIDED[0] - 0.1 if divided else LOUD * 0.999)
        assert not case.features.part or shown.min() <= QUIET
        unread = [node for node in graph.nodes if not {*graph.readers, *graph.outputs} & {*node.outputs}]
        assert bool(unread) is case.features.dead
        assert len(case.made.good[graph.inputs[0]]) == case.features.samples
        assert 8 <= len(graph.nodes) <= 40
        if case.features.kind is not Kind.FAR:
            assert (len(case.units) > 1) is case.features.repeated


def test_right_is_what_was_planted_and_is_enough() -> None:
    for case in first_cases():
        innocent = set(range(len(case.target.graph.nodes))).difference(*case.units)
        assert case.fewest and not case.right(())
        for some in case.fewest:
            answer = frozenset().union(*some)
            assert case.right(answer)
            assert not any(case.right(answer | {index}) for index in innocent)
            if len(answer) > 1 and len(some) == 1:
                assert not any(case.right(answer - {index}) for index in answer)
        assert all(case.right(unit) for unit in case.enough)
        if case.enough and case.features.kind is Kind.FAR:
            assert not any(case.right(unit) for unit in case.units if unit not in case.enough)


def test_a_target_without_a_fault_is_right_and_only_what_differs_is_computed() -> None:
    random = Random(0)
    for case in first_cases()[:40]:
        nodes = range(len(case.target.graph.nodes))
        healthy = Target(case.made)
        for _ in range(5):
            keep = [index for index in nodes if random.random() < 0.6] or [0]
            assert healthy.cut(keep).measure == 0.0 == healthy.splice(keep).measure
        whole = case.rules.wrong(case.target.graph.nodes, case.target.graph.output_set, case.made.constant)
        assert np.allclose(
            case.target.errors(nodes, case.target.graph.outputs, whole), _in_full(case, whole), rtol=1e-3, atol=1e-3
        )


def _in_full(case: Case, wrong: dict[str, Wrong]) -> np.ndarray:
    """Evaluate every node."""
    values = {name: value for name, value in case.made.good.items() if name not in case.target.graph.producers}
    for proto in case.target.graph.protos:
        (name,) = proto.output
        values[name] = KERNELS[proto.op_type](*(values[read] for read in proto.input))
        values[name] = wrong[name].of(values[name]) if name in wrong else values[name]
    found = []
    for name in case.target.graph.outputs:
        good, made = (np.reshape(held[name], (case.made.samples, -1)) for held in (case.made.good, values))
        found.append(np.abs(made - good).max(1) / np.abs(good).max(1).astype(np.float64) / 0.01)
    return np.minimum(np.max(found, axis=0), LARGEST)


def test_onnx_runtime_computes_the_same_values() -> None:
    operators = set()
    for case in first_cases():
        operators |= {node.op_type for node in case.target.graph.nodes}
        loaded = session(case.made.model, 99)
        for at in range(case.made.samples):
            feeds = {name: value[at] for name, value in case.made.inputs.items()}
            for name, value in zip(case.target.graph.outputs, loaded.run(None, feeds), strict=True):
                assert np.allclose(value, case.made.good[name][at], rtol=1e-3, atol=1e-4 * np.abs(value).max())
    assert operators == KERNELS.keys()


def test_a_chain_is_fused_only_where_nobody_else_reads_what_is_inside() -> None:
    steps = [("Abs", "x", "a"), ("Neg", "a", "b"), ("Tanh", "b", "c"), ("Abs", "c", "d"), ("Neg", "d", "e")]
    nodes = [helper.make_node(operator, [read], [gives], name=gives) for operator, read, gives in steps]
    info = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "e")]
    graph = Graph.of(helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:])))

    def ends(outputs: set[str], constant: tuple[str, ...] = (), without: str = "") -> list[str]:
        kept = [node for node in graph.nodes if node.name not in without]
        return [chain[-1].name for chain in fused(("Abs", "Neg"), kept, outputs, constant)]

    assert ends({"e"}) == ["b", "e"]
    assert ends({"e", "d"}) == ["b"] and ends({"e", "a"}) == ["e"]
    assert ends({"e"}, without="b") == ["e"] and ends({"e"}, ("a",)) == ["e"]
    wrong = Rules({"c": Wrong(0.5)}, ("Abs", "Neg"), Wrong(2.0)).wrong(graph.nodes, {"e"}, ())
    assert wrong == {"c": Wrong(0.5), "b": Wrong(2.0), "e": Wrong(2.0)}


def test_of_several_samples_a_check_tells_the_first_that_fails_or_the_worst() -> None:
    told = {how: [judged(np.array(one), how) for one in ([0.5, 2.0, 9.0], [0.9, 0.2])] for how in ("first", "worst")}
    assert [(one.fails, one.measure) for one in told["first"]] == [(True, 2.0), (False, 0.2)]
    assert [(one.fails, one.measure) for one in told["worst"]] == [(True, 9.0), (False, 0.9)]


def test_a_kernel_that_is_wrong_beyond_a_limit_is_right_below_it() -> None:
    value = np.array([0.5, 1.0, 3.0], np.float32)
    assert Wrong(-0.5, 1.0).of(value).tolist() == [0.5, 1.0, 2.0]
    assert Wrong(0.5).of(value).tolist() == [0.75, 1.5, 4.5]


def test_a_seed_gives_the_same_case_and_the_table_counts_every_model_once_in_each_group() -> None:
    one, other = case_of(7), case_of(7)
    assert one.made.model == other.made.model and (one.rules, one.units) == (other.rules, other.units)
    rows = [rows[0] for _, rows in map(rows_of, range(12)) if rows]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(rows, 6)]
    assert lines[0] == list(HEAD)
    counts = {cells[0]: cells[1] for cells in lines[2:]}
    assert counts["any"] == "6; 6" and counts["kernel"] == counts["fusion"] == counts["far"] == "2; 2"


@pytest.mark.parametrize("seed", sample([4, 14, 15], 3))
def test_a_run_says_what_is_simulated(tmp_path: Path, seed: int) -> None:
    # where a function's own measure passes is not known, as it is of tolerances
    own = replace(MEASURES, known=False)
    simulated, ran = both(case_of(seed), tmp_path, VERDICTS if seed % 2 else own)
    assert ran == simulated
