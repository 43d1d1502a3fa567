"""What is asked next, from transcripts of triages; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.jobs.triage.flowchart import (
    AT_THE_EDGE,
    BOXES,
    INSPECT,
    MODELS_OWN,
    MODELS_OWN_RECORDED,
    NAMES,
    OF_THE_MODEL,
    PLAIN_IS_FINITE,
    branch,
    decisions,
    next_step,
    told_passes,
    verdict,
)
from runner.jobs.triage.transcript import PART, SEEN, Ended, Known, Situation
from runner.report.summary import summary_of

STRATEGIES = frozenset(box.strategy for box in BOXES)
HERE = Situation(strategies=STRATEGIES, others="1 other random input (inputs.seed=2)")
ASKED = tuple(name for name in NAMES if name != INSPECT)
"""What is asked of a model whose file tells nothing."""
COMMAND = replace(HERE, own_code=True, looks_at_values=False, inputs="files")
MISMATCH = {"stage": "compare", "kind": "mismatch"}
CRASH = {"stage": "infer", "kind": "death FPE"}
NAN = {"stage": "infer", "kind": "nan"}


def judged(failed: int, of: int, signature: Mapping[str, str] | None = None, seconds: float = 0.1) -> dict[str, Any]:
    outcomes = {"fail": failed, "pass": of - failed}
    return {"status": "found", "outcomes": outcomes, "signature": signature, "seconds": {"checking": seconds * of}}


def found(*culprits: str, **more: Any) -> dict[str, Any]:
    return {"status": "found", "message": "so it is", "culprits": [*culprits], **more}


def stepped(
    name: str, strategy: str = "", folder: str = "", why: str = "", result: Mapping[str, Any] | None = None
) -> Ended:
    """A step with the result that its file holds."""
    return Ended(name, strategy, folder, why, None if result is None else summary_of(result))


def told(situation: Situation, results: Mapping[str, dict[str, Any]], **more: Any) -> Known:
    """Go through the flowchart, each step ending as told; one that is not told of may not be asked."""
    known = Known(situation, ASKED, **more)
    while step := next_step(known):
        assert not step.strategy or step.name in results, f"{step.name} was asked: {step.why}"
        asked = bool(step.strategy)
        folder = f"steps/{step.name}" if asked else ""
        known = known.after(stepped(step.name, step.strategy, folder, step.why, results[step.name] if asked else None))
    asked_ones = {one.name for one in known.ended if one.folder}
    assert asked_ones == {*results}, f"asked were {asked_ones}"
    return known


FAILS = {"stands": judged(2, 2, MISMATCH), "repeat": judged(4, 4, MISMATCH)}
GIVES_NAN = {"stands": judged(2, 2, NAN), "repeat": judged(4, 4, NAN)}
CUT = found("a", "b", nodes={"before": 9, "after": 2}, cause={"status": "proven"}, model="reduced.onnx")
PASSES = found("F", passes={"needed": ["F", "G"], "heals": [["F"], ["G"]], "settings": {}})
RELEASES = found(releases={"good_after": "1.2", "good_before": None})
NONE = {"status": "nothing_to_find"}
SAMPLES = {"passed": 1, "of": 1, "kind": "recorded"}
HELPS = found(workarounds=[{"what": "F off", "passes": True, "samples": SAMPLES}])


def test_the_file_itself_comes_first_and_may_be_the_answer() -> None:
    says = {"status": "found", "message": "w is declared twice", "inspection": {"why": "w is declared twice"}}
    first = next_step(Known(HERE, NAMES))
    assert first and first.strategy == "inspect"
    ended = (stepped(INSPECT, "inspect", "steps/00-inspect", "w", says),)
    known = Known(HERE, NAMES, ended=ended)
    assert next_step(known) is None and verdict(known) == "w is declared twice" and branch(known) == "not loaded"
    # a check of one's own may run it otherwise
    following = next_step(Known(COMMAND, NAMES, ended=ended))
    assert following and following.name == "stands"
    nothing = stepped(INSPECT, "inspect", "steps/00-inspect", "w", {"status": "found", "inspection": {}})
    following = next_step(Known(HERE, NAMES, ended=(nothing,)))
    assert following and following.name == "stands"


def test_wrong_values_whose_first_bad_tensor_is_made_by_a_piece_that_fails_alone() -> None:
    situation = replace(HERE, releases="2 in the cache")
    steps = {
        **FAILS,
        "inputs": judged(1, 1),
        "layerwise": found("b"),
        "extract": judged(2, 2, {"stage": "compare", "kind": "mismatch"}),
        "reduce": CUT,
        "passes": PASSES,
        "healed": judged(0, 2),
        "versions": RELEASES,
        "workaround": HELPS,
    }
    known = told(situation, steps)
    assert branch(known) == "extract" and known.culprits == ("a", "b")
    said = verdict(known)
    assert said.startswith("wrong values, in 6 of 6 runs; with other random inputs too; cause proven")
    assert "it needs F, G, and passes without any one of them" in said
    assert said.endswith("workaround: F off (1 of 1 recorded inputs pass)")
    assert [one.step for one in decisions(known)] == [f"steps/{name}" for name in steps]
    inner = {**CUT, "nested": ["a.body/c"], "cause": {"status": "proven", "inside": {"status": "untested"}}}
    of = "proven for the outer node; the nodes inside were only shown to fail alone"
    assert f"a, b; inside: a.body/c (2 of 9 nodes); cause {of}" in told(situation, {**steps, "reduce": inner}).reduced


def test_where_the_piece_passes_or_marking_hides_it_parts_are_searched() -> None:
    nothing = {"passes": NONE, "passes_on_whole": NONE, "workaround": found()}
    steps = {**FAILS, "inputs": judged(0, 1), "layerwise": found("b"), "extract": judged(1, 2), "reduce": CUT}
    known = told(HERE, {**steps, **nothing})
    assert branch(known) == "reduce" and f"; passes with {HERE.others}" in verdict(known)
    hidden = {"status": "could_not_judge", "layers": {"marking": "hides"}, "message": "marking hides it"}
    del steps["extract"]
    assert branch(told(HERE, {**steps, **nothing, "layerwise": hidden})) == "reduce"
    assert branch(told(HERE, {**steps, **nothing, "layerwise": found("b", layers={"marking": "hides"})})) == "reduce"


CRASHES = {"stands": judged(2, 2, CRASH), "repeat": judged(4, 4, CRASH)}
PASSING = {"stands": judged(0, 2), "repeat": judged(0, 4)}
EXITS = {"stands": judged(2, 2, {"stage": "check", "kind": "exit 1"}), "repeat": judged(4, 4), "reduce": CUT}
NO_HELP = {"layerwise": NONE, "reduce": CUT, "passes": NONE, "passes_on_whole": NONE, "workaround": found()}


@pytest.mark.parametrize(
    ("here", "steps", "ends", "said"),
    [
        pytest.param(
            *({}, {**CRASHES, "reduce": CUT, "passes": NONE, "passes_on_whole": PASSES, "workaround": HELPS}, "reduce"),
            "it needs F, G, and passes without any one of them",
            id="a crash goes straight to the reduction",
        ),
        pytest.param(
            *({}, {**PASSING, "inputs": judged(1, 1, MISMATCH), **NO_HELP}, "reduce"),
            "with other random inputs (1 of 1 check failed), not with the first",
            id="another seed fails",
        ),
        pytest.param(
            {"builds_engines": True, "inputs": "files"},
            {"stands": judged(1, 2, MISMATCH), "inputs": judged(1, 1), "tactics": found(), **NO_HELP},
            "tactics",
            "in 1 of 2 runs (flaky)",
            id="builds that differ are about tactics",
        ),
        pytest.param(
            {"hides_rounding": True},
            {**PASSING, "rounded": judged(2, 2, NAN), "inputs": judged(1, 1), **NO_HELP},
            "reduce",
            "NaN in the output, only when operators round as on a GPU; with other random inputs too",
            id="a low precision that the target hides",
        ),
        # a check of one's own: no values are seen, and passes and releases only where the command has a place for them
        pytest.param(vars(COMMAND), {**EXITS, "workaround": found()}, "reduce", "a check fails", id="a check"),
        pytest.param(
            {**vars(COMMAND), "names_switches": True, "names_python": True, "releases": "1 in the cache"},
            {**EXITS, "passes": PASSES, "versions": RELEASES, "workaround": HELPS},
            "reduce",
            "workaround: F off",
            id="a check with places",
        ),
        pytest.param({**vars(COMMAND), "inputs": "random"}, PASSING, "passes", "", id="inputs it does not look at"),
    ],
)
def test_what_is_asked_of_a_failure(here: dict[str, Any], steps: dict[str, Any], ends: str, said: str) -> None:
    known = told(replace(HERE, **here), steps)
    assert branch(known) == ends and said in verdict(known), verdict(known)
    if known.failure == "infer: death FPE":
        (why,) = [one.why for one in decisions(known) if one.question == "Which tensor is wrong first?"]
        assert why.startswith("the failure is not about values (infer: death FPE)")


def test_nothing_fails() -> None:
    of_empty = {**judged(0, 2), "lacks": ["inputs.ranges={n: [3, 4]}"]}
    results = {name: judged(0, 4) for name in ("repeat", "inputs", "more_inputs")} | {"stands": of_empty}
    assert "values of which the outputs show more (inputs.ranges={n: [3, 4]})" in verdict(told(HERE, results))
    passing = {name: judged(0, of) for name, of in (("stands", 2), ("repeat", 4), ("inputs", 1), ("more_inputs", 1))}
    known = told(HERE, passing)
    assert branch(known) == "passes" and "nothing fails in 8 checks; to try next: real inputs" in verdict(known)
    odd = {"kind": "NaN", "where": "w", "what": "1 of 9 elements; every result from it is NaN", "names": ["w"]}
    looked = stepped(INSPECT, "inspect", "steps/00-inspect", "", {"status": "found", "inspection": {"concerns": [odd]}})
    said = verdict(replace(known, ended=(looked, *known.ended)))
    assert said.startswith("nothing fails in 8 checks, but the file has NaN in w (1 of 9 elements); to try next: ")
    given = told(replace(HERE, inputs="files"), {name: passing[name] for name in ("stands", "repeat")})
    assert branch(given) == "passes" and "real inputs" not in verdict(given)


def test_where_rounding_is_hidden_and_was_not_asked_about_it_is_what_to_try() -> None:
    ended = (stepped("stands", "repeat", "s", "w", judged(0, 2)), stepped("rounded"))
    hides = replace(HERE, hides_rounding=True)
    assert "to try next: target.rounding=on (the" in verdict(Known(hides, (), ended=ended))
    assert "rounding" not in verdict(Known(HERE, (), ended=ended))
    alone = Known(replace(HERE, quantized_alone=True), (), ended=ended)
    assert "to try next: the model before quantization (--original float.onnx)" in verdict(alone)


def test_where_the_right_shapes_were_recorded_no_other_question_sees_them() -> None:
    situation = replace(HERE, on_its_own=False, inputs="python", releases="1 in the cache")
    shape = {"stage": "compare", "kind": "shape"}
    first = {"stands": judged(2, 2, shape), "repeat": judged(2, 2, shape)}
    known = told(situation, {**first, "layerwise": found(), "reduce": CUT, "workaround": found()})
    assert "the good values were recorded" in known.of("passes").why
    assert "the good values were recorded" in known.of("versions").why


def test_low_precision() -> None:
    situation = replace(HERE, low="float16", optimizes=False, alone=False, inputs="python")
    steps = {
        "layerwise": found("a"),
        "extract": judged(2, 2, {"stage": "compare", "kind": "mismatch"}),
        "reduce": CUT,
        "precision": found("n", precision={"high": "float32", "low": "float16", "selected": [{"node": "n"}]}),
        "workaround": found(),
    }
    known = told(situation, {**FAILS, **steps})
    assert "; n must stay in float32" in verdict(known) and known.place == "the whole model"


def test_where_a_precision_search_has_what_helps_no_workaround_is_said_to_be_missing() -> None:
    """Of pairs that quantize there is no workaround to try; the screen has what to leave in float32 beside `helps`."""
    precision = found("n", precision={"high": "float32", "low": "quantized", "selected": [{"node": "n"}]})
    cut = found("n", nodes={"before": 9, "after": 1}, whose="conversion")
    for reduce in (cut, NONE):
        steps = {**FAILS, "layerwise": NONE, "reduce": reduce, "precision": precision}
        known = told(replace(HERE, low="quantized", optimizes=False, alone=False, inputs="python"), steps)
        (why,) = [one.why for one in decisions(known) if "workaround" in one.question]
        assert why == "step precision tells what helps: in float32: n"


@pytest.mark.parametrize("status", ["proven", "not proven"])
def test_where_no_part_is_the_cause_the_layers_that_do_not_stand_quantization_are_the_answer(status: str) -> None:
    precision = found("n", precision={"high": "float32", "low": "quantized", "selected": [{"node": "n"}]})
    cut = found("dq", nodes={"before": 9, "after": 1}, whose="quantization", cause={"status": status})
    part = found("dq", signature={"stage": "compare", "kind": "mismatch"})  # it fails alone, which shows nothing
    known = told(
        replace(HERE, low="quantized", alone=False, inputs="python"),
        {**FAILS, "layerwise": found("dq"), "extract": part, "reduce": cut, "precision": precision},
    )
    assert known.culprits == (("dq",) if status == "proven" else ())
    begins = "wrong values" if status == "proven" else "quantization error; n must stay in float32; no single"
    assert verdict(known).startswith(begins)


def test_what_heals_the_reduced_model_but_not_the_whole_is_asked_again() -> None:
    steps = {**FAILS, "reduce": CUT, "passes": PASSES, "healed": judged(2, 2), "passes_on_whole": PASSES}
    known = told(replace(HERE, inputs="python"), {**steps, "layerwise": found(), "workaround": found()})
    assert told_passes(known) == "it needs F, G, and passes without any one of them"


def test_what_heals_the_reduced_model_and_the_whole_is_tried_first() -> None:
    whole = found(passes={"needed": ["F", "G"], "heals": [["F"], ["G"]], "settings": {}})
    part = found(passes={"needed": ["G", "H"], "heals": [["H"], ["G"]], "settings": {}})
    steps = {**FAILS, "reduce": CUT, "passes": part, "healed": judged(2, 2), "passes_on_whole": whole}
    known = told(replace(HERE, inputs="python"), {**steps, "layerwise": found(), "workaround": found()})
    assert known.heals == (("G",), ("F",))


def test_where_the_reduced_model_fails_with_all_passes_off_the_whole_is_not_asked() -> None:
    known = told(HERE, {**CRASHES, "reduce": CUT, "passes": {**NONE, "outcomes": {"fail": 2}}, "workaround": HELPS})
    (why,) = [one.why for one in decisions(known) if "the whole model need" in one.question]
    assert why.startswith("the reduced model fails with all of them off")


def test_a_nan_that_the_reference_makes_as_well_is_no_matter_of_passes_and_releases() -> None:
    here = replace(HERE, inputs="python", releases="2 in the cache")
    layers = {"first_bad": {"kind": "not finite"}}
    plain = judged(1, 1, NAN)
    steps = {**GIVES_NAN, "layerwise": found(layers=layers), "reduce": CUT, "plain": plain, "workaround": NONE}
    known = told(here, steps)
    assert known.reference_too and "not from a bug of the runtime" in verdict(known)
    assert [known.of(name).why for name in ("passes", "versions")] == [OF_THE_MODEL] * 2
    answer = {"good_outputs": {"reason": "the reference computes a NaN or Inf in 'c' too"}}
    cut = {**CUT, "cause": {"status": "untested", "answers": [answer]}}
    assert told(here, {**steps, "layerwise": NONE, "reduce": cut}).reference_too
    mask = {**CUT, "cause": {"status": "untested", "reason": answer["good_outputs"]["reason"], "answers": [{}]}}
    more = {"passes": NONE, "passes_on_whole": NONE, "versions": NONE}
    del steps["plain"]
    assert not told(here, {**steps, **more, "layerwise": NONE, "reduce": mask}).reference_too, "it is read, not made"


def test_a_nan_that_only_the_recording_has_is_asked_about_on_the_whole_model() -> None:
    """Rounded to float16 to be recorded a part overflows in the reference, whose plain run of the file is finite."""
    here = replace(HERE, inputs="python", hides_rounding=True)
    layers = {"first_bad": {"kind": "not finite"}}
    steps = {**GIVES_NAN, "layerwise": found(layers=layers), "reduce": CUT, "plain": judged(0, 1)}
    known = told(here, {**steps, "passes": PASSES, "workaround": HELPS})
    assert not known.reference_too and known.place == "the whole model" and known.off_holds_on == known.place
    said = verdict(known)
    assert (
        f"{AT_THE_EDGE}; it needs F, G, and passes without any one of them (the whole model); " in said
        and "no bug" not in said
    )
    assert PLAIN_IS_FINITE in verdict(replace(known, situation=HERE)) and "edge" in AT_THE_EDGE
    assert "edge" not in verdict(replace(known, situation=HERE)), "nothing is rounded that was not"


@pytest.mark.parametrize(
    "plain", [judged(1, 1, {"stage": "load", "kind": "error"}), {"status": "could_not_judge", "message": "m"}]
)
def test_a_plain_run_of_the_reference_that_tells_nothing_is_not_taken_for_one_that_does(plain: dict[str, Any]) -> None:
    steps = {
        **GIVES_NAN,
        "layerwise": found(layers={"first_bad": {"kind": "not finite"}}),
        "reduce": CUT,
        "plain": plain,
    }
    known = told(replace(HERE, inputs="python"), {**steps, "workaround": HELPS})
    assert MODELS_OWN_RECORDED in verdict(known) and MODELS_OWN not in verdict(known)


def test_no_plain_run_is_asked_for_where_the_target_rounds_as_the_recording_does() -> None:
    steps = {**GIVES_NAN, "layerwise": found(layers={"first_bad": {"kind": "not finite"}}), "reduce": CUT}
    known = told(replace(HERE, inputs="python", rounds=True), {**steps, "workaround": HELPS})
    assert MODELS_OWN in verdict(known)


def test_a_part_that_was_cut_out_is_not_called_the_smallest() -> None:
    piece = {**judged(1, 1, MISMATCH), "culprits": ["b"], "nodes": {"before": 9, "after": 1}}
    steps = {**FAILS, "inputs": judged(1, 1), "layerwise": found("b"), "extract": piece}
    stopped = {**steps, "reduce": {"status": "interrupted", "message": "interrupted"}}
    known = told(HERE, stopped)
    assert known.answer == "extract"
    assert verdict(known).endswith("this part fails alone; no smaller one was found")


def test_precision_that_found_nothing_is_no_remedy() -> None:
    result = {"status": "nothing_to_find", "culprits": ["n"]}
    assert not Known(HERE, NAMES, ended=(stepped("precision", result=result),)).remedies
    assert Known(HERE, NAMES, ended=(stepped("precision", result={**result, "status": "found"}),)).remedies


@pytest.mark.parametrize(("seen", "place"), [(judged(0, 2), "the whole model"), (judged(2, 2), ""), ({}, PART)])
def test_on_which_model_passes_were_shown_to_help(seen: dict[str, Any], place: str) -> None:
    ended = (stepped("reduce", result=CUT), stepped("passes", result=PASSES), stepped("healed", result=seen))
    assert Known(HERE, NAMES, ended=ended).off_holds_on == place


def test_what_left_the_search_for_a_part_out_is_said() -> None:
    ended = (stepped("stands", "repeat", "s", "w", judged(2, 2, MISMATCH)),)
    assert "no part was searched: strategy.steps leaves it out" in verdict(
        Known(HERE, (), ended=(*ended, stepped("reduce")))
    )
    spent = (stepped("reduce", why="budget.checks=5 was reached"), stepped("passes", why="budget.checks=5 was reached"))
    said = verdict(Known(HERE, NAMES, ended=(*ended, *spent)))
    assert said == "wrong values, in 2 of 2 runs; budget.checks=5 was reached before reduce, passes"


def test_a_status_is_not_said_twice() -> None:
    known = Known(HERE, NAMES, ended=(stepped("extract", result={"status": "could_not_judge"}),))
    assert known.said("extract") == "could_not_judge"


def test_a_step_that_fails_is_an_entry_and_not_the_end() -> None:
    broken = {"status": "internal_error", "message": "KeyError"}
    steps = dict.fromkeys(("inputs", "layerwise", "reduce", "passes"), broken)
    known = told(HERE, {**FAILS, **steps})
    assert branch(known) == "not reduced" and "no part was found: internal_error: KeyError" in verdict(known)


@pytest.mark.parametrize(
    ("how", "asked", "word"),
    [
        ({"planned": True}, {"stands": judged(2, 2, MISMATCH)}, "planned"),
        ({}, {"stands": {"status": "found", "outcomes": {"unresolved": 2}}}, "not judged"),
        ({}, {"stands": {**judged(1, 1, MISMATCH), "status": "interrupted"}}, "not reduced"),
    ],
)
def test_it_ends_after_the_first_step(how: dict[str, Any], asked: dict[str, Any], word: str) -> None:
    assert branch(told(HERE, asked, **how)) == word


def test_of_steps_that_are_not_wanted_not_installed_or_beyond_the_budget() -> None:
    known = Known(HERE, ("stands", "reduce"), ended=(stepped("stands", "repeat", "s", "w", FAILS["stands"]),))
    names: list[tuple[str, str]] = []
    while step := next_step(known):
        names += [(step.name, step.strategy)] if step.strategy or step.why else []
        known = known.after(stepped(step.name, step.strategy, step.strategy, step.why, CUT if step.strategy else {}))
    assert names == [("reduce", "reduce")]
    few = replace(HERE, strategies=STRATEGIES - {"layerwise"})
    after = Known(
        few,
        ASKED,
        ended=tuple(stepped(name, "repeat", name, "w", judged(1, 1, MISMATCH)) for name in (INSPECT, *SEEN, "tactics")),
    )
    step = next_step(after)
    assert step and step.strategy == "" and step.why == "strategy=layerwise is not installed here"
    spent = next_step(Known(HERE, ASKED, ended=(stepped(INSPECT), *known.ended[:1]), spent="budget.checks=2"))
    assert spent and spent.strategy == "" and spent.why == "budget.checks=2 was reached"


@pytest.mark.parametrize("value", [None, 3, "x", ["x"], {"x": 1}, [{"what": 1}]])
def test_a_result_may_hold_anything(value: Any) -> None:
    keys = ("status", "message", "outcomes", "signature", "culprits", "passes", "releases", "workarounds", "layers")
    nonsense = dict.fromkeys((*keys, "checks", "seconds", "nodes", "cause"), value)
    known = Known(HERE, NAMES)
    for name in NAMES:
        known = known.after(stepped(name, "s", "f", "w", FAILS["stands"] if name == "stands" else nonsense))
    assert next_step(known) is None and branch(known) and verdict(known) and decisions(known)
    assert known.heals is not None and known.remedies is not None and known.first_bad is not None


@pytest.mark.parametrize("outcome", ["pass", "fail"])
def test_a_control_is_no_run_of_the_model_whatever_it_shows(outcome: str) -> None:
    # the file, the whole model, and an Identity alone, which was checked four times
    stands = {**judged(2 + 4 * (outcome == "fail"), 6), "controls": {outcome: 4}}
    known = Known(COMMAND, NAMES).after(stepped("stands", "reduce", "s", "w", stands))
    assert not known.flaky
    assert known.how_often == "in 2 of 2 runs"


def test_a_triage_that_was_stopped_in_its_reduction_says_nothing_half() -> None:
    stopped = {"status": "interrupted", "message": ""}
    known = Known(COMMAND, NAMES)
    for name, of in (*FAILS.items(), ("reduce", stopped)):
        known = known.after(stepped(name, "reduce", f"steps/{name}", "why", of))
    assert verdict(known).endswith("no part was found so far")
    assert known.said("reduce") == "interrupted"
