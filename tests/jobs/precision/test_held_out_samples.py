"""Samples that a precision search does not look at: its answer has to pass them too, or it is said that it does not."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from runner.jobs.precision import held_out_samples
from runner.jobs.precision.held_out_samples import Division, Samples
from runner.jobs.precision.mixed_model import Margin
from runner.jobs.precision.sample_rounds import Confidence, Rounds
from runner.judgment import MEASURE
from runner.reference.hints import brings_own
from runner.report.result_parts import ErrorLeft
from runner.schema.checker import CommandChecker
from runner.schema.inputs import RandomInputs
from strategies.search import Outcome, Trial
from tests.harness import Run, interrupted, winnow
from tests.jobs.models import parsed
from tests.jobs.precision.test_precision import SIZE, network, search, search_low
from tests.matrix import sample


def given(folder: Path, count: int, large: Sequence[int]) -> tuple[str, str]:
    """Samples of which only the ``large`` ones leave the range of fp16 on their way."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    for number in range(count):
        x = random.uniform(0.5, 3, (4, SIZE)) if number in large else random.uniform(0, 0.01, (4, SIZE))
        np.savez(folder / f"{number}.npz", x=x.astype(np.float32))
    return "inputs=files", f"inputs.path={folder}"


def answered(
    folder: Path, model: onnx.ModelProto, *options: str, strategy: str = "precision", code: int | None = 0
) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / "net.onnx"))
    run = winnow(f"strategy={strategy}", f"model={folder / 'net.onnx'}", *options, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def told(run: Run) -> dict[str, Any]:
    return run.result["precision"]


def test_a_check_of_ones_own_goes_on_being_doubted(tmp_path: Path) -> None:
    """It is a program, and nobody knows what that rests on."""
    command = f"checker.command={[sys.executable, '-I', '-S', '-c', 'pass', '{model}']}"
    more = "strategy.allow_overflow=true", "strategy.held_out=2"
    run = search(tmp_path, network(), "checker=command", command, *more, code=4)
    unused = "strategy.held_out=2 keeps no sample from the search: checker=command has data of its own"
    assert unused in run.result["warnings"], run.output
    lines = "".join(path.read_text() for path in run.folder.glob("journal*.jsonl")).splitlines()
    repeats = [line for line in lines if '"phase": "doubt"' in line and '"ranges": ""' in line]
    assert len(repeats) > 5, "that nothing raised passes is the answer"
    assert told(run)["samples"]["why_not_held_out"] == "checker=command has data of its own"
    assert told(run)["samples"]["passed_held_out"] is None
    assert told(run)["error"] == {}  # it measures nothing
    assert [brings_own(CommandChecker(command=one)) for one in ("a {model}", "a {model} {inputs}")] == [True, False]
    assert "the answer was not tried on other samples: checker=command has data of its own" in run.result["message"]


@pytest.mark.parametrize("strategy", sample(["precision", "precision_linear"], 2))
def test_where_only_what_was_held_out_fails_all_samples_are_searched(tmp_path: Path, strategy: str) -> None:
    """Of six the third and the last are held out, and those alone overflow: there is no answer to add nodes to."""
    options = given(tmp_path / "in", 6, (2, 5))
    run = answered(tmp_path, network(3, 7), *options, strategy=strategy)
    assert run.result["minimality"] == "1-minimal"
    # in layer 7 it overflows only if layer 3 did not lose it before
    assert set(run.result["culprits"]) <= {"up3", "down3", "up7", "down7", "gain3", "gain7"}
    samples, error = told(run)["samples"], told(run)["error"]
    assert (samples["rounds"], samples["searched"], samples["held_out"]) == (2, 6, 4)
    assert samples["passed_held_out"] is True and samples["held_out_are"] == "variants of those given"
    for on in ("searched", "held_out"):
        assert error[on]["before"] > 1 > error[on]["after"], on
    assert "so these are searched on as well" in run.output
    if strategy == "precision":  # of all samples, not those alone that were searched first
        assert any("beyond 6.55e+04" in one["reason"] for one in told(run)["selected"])
    assert "of the tolerance on 6 samples of the search" in run.result["message"]
    assert "on 4 varied samples; with everything low" in run.result["message"]
    assert not (run.folder / "values").exists() and not (run.folder / "store").exists()


def test_those_held_out_are_spread_evenly_and_stated(tmp_path: Path) -> None:
    options = given(tmp_path / "in", 6, (0, 1, 3, 4))  # those that are searched
    run = answered(tmp_path, network(3), *options)
    samples, error = told(run)["samples"], told(run)["error"]
    assert (samples["rounds"], samples["searched"], samples["held_out"]) == (1, 4, 2)
    assert (samples["held_out_are"], samples["passed_held_out"]) == ("given", True)
    assert error["searched"]["before"] > 1 > error["held_out"]["before"]
    report = (run.folder / "REPORT.md").read_text()
    assert "| 4 of the search |" in report and "| 2 others |" in report
    assert not any("one sample" in warning for warning in run.result["warnings"])


def test_one_sample_is_warned_of_and_variants_are_held_out(tmp_path: Path) -> None:
    run = answered(tmp_path, network(3), *given(tmp_path / "in", 1, (0,)))
    assert any("only one sample was given" in warning for warning in run.result["warnings"])
    samples = told(run)["samples"]
    assert (samples["searched"], samples["held_out"], samples["held_out_are"]) == (1, 4, "variants of those given")
    assert samples["passed_held_out"] is True
    assert "| 4 others (variants of those given) |" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_of_whole_numbers_there_are_no_variants(tmp_path: Path) -> None:
    text = """g (int64[3] x) => (float[3] y)
    <float[5] w = {1.5, 0.3, 0.7, 1.1, 0.9}, float up = {300.0}, float back = {90000.0}>
    { [take] a = Gather(w, x) [first] b = Mul(a, up) [second] c = Mul(b, up) [down] y = Div(c, back) }
    """
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in" / "0.npz", x=np.array([0, 1, 4]))
    run = answered(tmp_path, parsed(text), "inputs=files", f"inputs.path={tmp_path / 'in'}")
    samples = told(run)["samples"]
    assert (samples["held_out"], samples["held_out_are"], samples["passed_held_out"]) == (0, None, None)
    assert samples["why_not_held_out"] == "there are no samples but those that are searched"
    assert "held_out" not in told(run)["error"]
    assert (
        "the answer was not tried on other samples: there are no samples but those that are searched"
        in run.result["message"]
    )


@pytest.mark.parametrize("wanted", sample([3, 2], 2))
def test_one_has_to_be_left_to_search_on(tmp_path: Path, wanted: int) -> None:
    run = answered(tmp_path, network(3), *given(tmp_path / "in", 3, (0,)), f"strategy.held_out={wanted}", code=None)
    if wanted == 3:
        assert run.code == 2 and "strategy.held_out=3: there are 3 samples" in run.output
    else:
        assert run.code == 0, run.output
        assert (told(run)["samples"]["searched"], told(run)["samples"]["held_out"]) == (1, 2)


@pytest.mark.slow
def test_inputs_that_become_low_are_held_out_in_their_new_type(tmp_path: Path) -> None:
    run = answered(tmp_path, network(3, 7), *given(tmp_path / "in", 6, (2, 5)), "strategy.keep_io=false")
    assert told(run)["samples"]["rounds"] == 2 and told(run)["samples"]["passed_held_out"] is True


@pytest.mark.slow
def test_what_is_right_is_kept_apart_for_each_sample(tmp_path: Path) -> None:
    """A model that is low already: its good outputs are made anew, of the searched ones and of those held out."""
    onnx.save(network(3), str(tmp_path / "net.onnx"))
    half = onnx.load(str(search_low(tmp_path / "low", tmp_path / "net.onnx")))
    run = answered(tmp_path / "half", half, *given(tmp_path / "in", 6, (0, 2, 5)))
    assert run.result["culprits"] == ["up3", "down3"]
    assert told(run)["error"]["searched"]["before"] != told(run)["error"]["held_out"]["before"]


def cancelling() -> onnx.ModelProto:
    """An overflow, and two sums that lose the same digits: what one of them alone loses is lost for good."""
    text = """g (float[4,24] x) => (float[4,24] y)
        <float a = {4096.0}, float b = {4100.0}, float four = {4.0}, float big = {60000.0}>
    { [gain] s = Mul(x, four) [up] u = Mul(s, big) [down] d = Div(u, big)
      [left] l = Add(d, a) [right] r = Add(d, b) [apart] p = Sub(l, r) [near] n = Add(p, four)
      [sum] t = Add(n, d) [end] y = Tanh(t) }"""
    return parsed(text, opset=18, ir=9)


def test_what_fails_alone_and_was_left_out_is_raised_and_said(tmp_path: Path) -> None:
    run = search(tmp_path, cancelling())
    lowered = [line for line in run.output.splitlines() if " alone low " in line]
    for following, line in enumerate(reversed(lowered)):
        assert (left := re.search(r"(\d+) checks? left", line)) and int(left[1]) >= following, line
    alone = told(run)["fails_alone"]
    assert set(alone["nodes"]) == {"left", "right"} and alone["raised"] is True
    assert {"up", "down", "left", "right"} <= set(run.result["culprits"])
    assert "were added: with any one of them alone in low precision the model fails" in run.result["message"]
    assert "raised too" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sample([TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16], 3))
def test_variants_have_the_type_of_what_was_given(tmp_path: Path, dtype: int) -> None:
    kind = TensorProto.DataType.Name(dtype).lower()
    text = f"""g ({kind}[3] x) => (float[3] y) <float big = {{300.0}}, float back = {{90000.0}}> {{
        [cast] a = Cast<to = 1>(x) [first] b = Mul(a, big) [second] c = Mul(b, big) [down] y = Div(c, back) }}"""
    model = parsed(text, opset=18, ir=9)
    place = tmp_path / "in" / "test_data_set_0"
    place.mkdir(parents=True)
    sample = helper.make_tensor("x", dtype, [3], [0.75, 1.5, 0.8125])
    (place / "input_0.pb").write_bytes(sample.SerializeToString())
    run = answered(tmp_path, model, "inputs=files", f"inputs.path={tmp_path / 'in'}")
    assert told(run)["samples"]["held_out"] == 4 and told(run)["samples"]["passed_held_out"] is True


def steep(seconds: float = 0.0) -> onnx.ModelProto:
    """What is twice the range of fp16 where x is 2, and what is so where x is 20; a check takes a while."""
    text = f"""g (float[4,24] x) => (float[4,24] y, int64 count)
      <float large = {{60000.0}}, float small = {{6000.0}}, int64 most = {{{int(seconds * 1_000_000)}}},
       bool yes = {{1}}, int64 zero = {{0}}>
    {{ [up] u = Mul(x, large) [down] a = Div(u, large)
       [further] v = Mul(x, small) [back] b = Div(v, small)
       [sum] y = Add(a, b)
       [wait] count = Loop(most, yes, zero) <body = each (int64 i, bool c, int64 n) => (bool on, int64 m)
         {{ on = Identity(c) m = Add(n, i) }}> }}"""
    return parsed(text, opset=18, ir=9)


def stepped(folder: Path) -> tuple[str, str]:
    """Six samples; the third and the last are ten times as large."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    for number in range(6):
        x = random.uniform(2, 3, (4, SIZE)) * (10 if number in (2, 5) else 1)
        np.savez(folder / f"{number}.npz", x=x.astype(np.float32))
    return "inputs=files", f"inputs.path={folder}"


def test_an_answer_that_fails_on_what_was_held_out_grows(tmp_path: Path) -> None:
    run = answered(tmp_path, steep(), *stepped(tmp_path / "in"))
    assert (run.result["culprits"], run.result["minimality"]) == (["up", "down", "further", "back"], "grown")


class Grown:
    """Is there once a second round has checked everything raised: only then is anything known of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self) -> bool:
        return any('"pre-flight"' in path.read_text() for path in self.folder.glob("journal-*.jsonl"))


@pytest.mark.slow
def test_an_interruption_while_it_grows_leaves_what_was_found_before(tmp_path: Path) -> None:
    """Nothing of the second round is known yet; what passed on the samples that were searched first is handed over."""
    options = stepped(tmp_path / "in")
    onnx.save(steep(0.02), str(tmp_path / "net.onnx"))
    run, folder = ("strategy=precision", f"model={tmp_path / 'net.onnx'}", *options), tmp_path / "run"
    assert interrupted(*run, folder=folder, ready=Grown(folder), number=signal.SIGINT) == 130  # type: ignore[arg-type]
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["culprits"]) == ("interrupted", ["up", "down"])
    assert "fails on samples that the search did not use" in result["message"]
    assert result["precision"]["samples"]["passed_held_out"] is False
    onnx.checker.check_model(onnx.load(str(folder / "mixed.onnx")))
    assert not (folder / "values").exists()
    again = winnow(*run, f"resume={folder}", folder=folder)
    assert again.code == 0, again.output
    result = json.loads((folder / "result.json").read_text())
    assert result["culprits"] == ["up", "down", "further", "back"]


@pytest.mark.slow
def test_what_no_set_passes_leaves_the_answer_that_was_found_with_a_warning(tmp_path: Path) -> None:
    """What is to be low whatever is found overflows on those held out, with everything else raised as well."""
    run = answered(tmp_path, steep(), *stepped(tmp_path / "in"), "strategy.include=[further]")
    assert (run.result["culprits"], run.result["minimality"]) == (["up", "down"], "1-minimal")
    samples = told(run)["samples"]
    assert (samples["searched"], samples["held_out"], samples["passed_held_out"]) == (4, 2, False)
    assert any(
        "the search cannot use the other samples too (the check fails even with" in warning
        for warning in run.result["warnings"]
    )
    assert any(
        "the answer fails on samples that the search did not use" in warning for warning in run.result["warnings"]
    )
    assert "The answer fails on samples that the search did not use" in (run.folder / "REPORT.md").read_text()


def test_an_answer_that_raises_all_and_fails_on_what_was_held_out_is_none(tmp_path: Path) -> None:
    run = answered(tmp_path, steep(), *stepped(tmp_path / "in"), "strategy.include=[further,back,sum]", code=5)
    assert "the check fails even with everything in float32" in run.result["message"]
    assert run.result["message"].endswith("; it passes on 4 samples of the search")


def test_an_integer_that_differs_is_no_nan() -> None:
    """What has to be equal has no error in tolerances."""
    told = Confidence(Division((), ()), error={"searched": ErrorLeft(None, 0.3)})
    assert told.said == "error 0.3 of the tolerance on 0 samples of the search"
    assert replace(told, not_finite=True).said.endswith("; with everything low, NaN or Inf")
    inside = replace(told, inside=True, error={"searched": ErrorLeft(1.5, 0.3)})
    assert inside.said.endswith(
        "; with everything low, Inf inside (strategy.allow_overflow=true: 1.5 times the tolerance)"
    )


def test_what_holds_the_tolerance_does_so_on_what_was_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(outcome: Outcome) -> Any:
        return SimpleNamespace(outcome=outcome, metrics={MEASURE: 0.9})

    tried = [SimpleNamespace(trial=Trial.of(one), attempt=0, verdict=verdict(Outcome.PASS)) for one in ([1], [1, 2])]
    judge = SimpleNamespace(journal=SimpleNamespace(entries=lambda: tried))
    session = SimpleNamespace(judge=judge, spent=lambda: True, reliability=SimpleNamespace(rates=None))
    session.inquiry = SimpleNamespace(stopped=False)
    mixing: Any = SimpleNamespace(session=session, question=SimpleNamespace(margin=Margin(0.5, True)))
    held = SimpleNamespace(sure=lambda trial, *_: verdict(Outcome.PASS if len(trial) > 1 else Outcome.FAIL))
    nothing: Any = None
    rounds = Rounds(nothing, nothing, Division((), ()), SimpleNamespace(wanted=None), (1, 2, 3))
    monkeypatch.setattr(rounds, "_held_out", lambda *_: held)
    assert rounds._looser(mixing, Trial.of([1, 2, 3]), (nothing,)) == Trial.of([1, 2])
    assert rounds._looser(mixing, Trial.of([1, 2, 3]), ()) == Trial.of([1])
    # where none passes there, the margin is still what asks for all of the answer
    held.sure = lambda *_: verdict(Outcome.FAIL)
    rounds.confidence.by_margin = False
    assert rounds._looser(mixing, Trial.of([1, 2, 3]), (nothing,)) is None and rounds.confidence.by_margin


def test_what_holds_the_tolerance_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(trial: Trial, outcome: Outcome) -> Any:
        return SimpleNamespace(trial=trial, attempt=0, verdict=SimpleNamespace(outcome=outcome, metrics={MEASURE: 0.9}))

    known, asked = {Trial.of([]): Outcome.FAIL, Trial.of([1, 2]): Outcome.PASS}, list[Trial]()

    def sure(trial: Trial, *_: object) -> Any:
        asked.append(trial)
        return tried(trial, known.setdefault(trial, Outcome.FAIL)).verdict

    journal = SimpleNamespace(entries=lambda: [tried(*one) for one in known.items()])
    session = SimpleNamespace(judge=SimpleNamespace(journal=journal, sure=sure), spent=lambda: False)
    session.reliability, session.inquiry = SimpleNamespace(rates=None), SimpleNamespace(stopped=False)
    mixing: Any = SimpleNamespace(session=session, question=SimpleNamespace(margin=Margin(0.5, True)))
    nothing: Any = None
    rounds = Rounds(nothing, nothing, Division((), ()), SimpleNamespace(wanted=None), (1, 2, 3, 4, 5))
    monkeypatch.setattr(rounds, "_held_out", lambda *_: nothing)
    assert rounds._looser(mixing, Trial.of([1, 2, 3, 4, 5]), ()) == Trial.of([1, 2]) and asked == [Trial.of([1])]


@pytest.mark.parametrize(("work", "count"), [(1e6, 16), (1e9, 4)])
def test_more_are_drawn_where_a_sample_takes_little_work(
    monkeypatch: pytest.MonkeyPatch, work: float, count: int
) -> None:
    """Of inputs that all pass, 4 say little: what fails on one input of five passes on these in two of five cases."""
    monkeypatch.setattr(held_out_samples, "arithmetic", lambda *_: {0: work})
    settings: Any = SimpleNamespace(inputs=RandomInputs(name="random"))
    loaded: Any = SimpleNamespace(graph=SimpleNamespace(inputs=("x",)), recorded=SimpleNamespace(off=1))
    nothing: Any = None
    samples = Samples(settings, nothing, loaded, nothing, Path(), None)
    monkeypatch.setattr(samples, "_drawn", lambda wanted, _: (wanted,))
    monkeypatch.setattr(samples, "_told", lambda feeds, _: feeds)
    assert samples.more(()) == (count,)
