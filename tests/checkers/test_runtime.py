from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner import machine
from runner.checkers.candidate_runs import NOT_READY, BackendRun, BackendRunner
from runner.checkers.checker import Checker, build
from runner.checkers.runtime import RuntimeCheck
from runner.exit_codes import NotTried, UsageError
from runner.schema.backend import (
    BackendSettings,
    OnnxReferenceBackend,
    OnnxRuntimeBackend,
    Optimization,
    TensorRtBackend,
    as_reference,
)
from runner.schema.checker import (
    AutoChecker,
    BuildsChecker,
    CheckerSettings,
    CompareChecker,
    FiniteChecker,
    Golden,
    NonFiniteOutput,
    RunsChecker,
    Tolerance,
)
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings, ReduceSettings, RepeatSettings, StrategySettings
from runner.verdict import UNSEEN, Signature, Verdict
from runner.workers.reply import OUT_OF_MEMORY, Failure, Reply
from strategies.search import Outcome, Trial
from tests.checkers.conftest import Here
from tests.checkers.models import model

ORT = OnnxRuntimeBackend()
PLAIN = OnnxRuntimeBackend(optimization=Optimization.none)
REFERENCE = OnnxReferenceBackend()
HALF = np.array([60000, 1, 2, 3], np.float16)


def make(
    here: Here,
    checker: CheckerSettings,
    target: BackendSettings = ORT,
    reference: BackendSettings = PLAIN,
    strategy: StrategySettings | None = None,
) -> Checker:
    settings = Settings(
        model="m.onnx",
        strategy=strategy or ReduceSettings(),
        checker=checker,
        target=target,
        reference=reference,
        inputs=RandomInputs(),
    )
    return build(settings, here)


@pytest.fixture
def unknown_op(tmp_path: Path) -> Path:
    return model([helper.make_node("NoSuchOp", ["x"], ["y"])], tmp_path / "unknown.onnx")


@pytest.fixture
def overflow(tmp_path: Path) -> Path:
    """fp16: 60000 + 60000 is Inf where fp16 is really rounded; ONNX Runtime's CPU provider computes the sum in fp32."""
    nodes = [helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Sub", ["t", "x"], ["y"])]
    return model(nodes, tmp_path / "overflow.onnx", dtype=TensorProto.FLOAT16)


@pytest.fixture
def reshape(tmp_path: Path) -> Path:
    """Runs on nothing: 4 elements do not make 3 by 3."""
    return model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], tmp_path / "reshape.onnx", weights={"s": np.array([3, 3])}
    )


X = {"x": np.array([-1, 2, 3, 4], np.float32)}


@pytest.mark.parametrize("checker", [RunsChecker(), FiniteChecker(), CompareChecker(), AutoChecker()])
def test_a_good_model_passes(here: Here, checker: CheckerSettings) -> None:
    one = here.candidate(here.relu, X, X)
    verdict = make(here, checker).check(one)
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.seconds > 0 and verdict.peak_rss_mb > 0
    # the values are gone
    assert sorted(path.name for path in one.folder.iterdir()) == ["feeds", "golden"]


@pytest.mark.parametrize("checker", [RunsChecker(), FiniteChecker(), CompareChecker(), AutoChecker()])
def test_a_model_that_does_not_load(here: Here, unknown_op: Path, checker: CheckerSettings) -> None:
    check = make(here, checker)
    verdict = check.check(here.candidate(unknown_op, X))
    assert verdict.outcome is Outcome.FAIL and verdict.signature and verdict.signature.stage == "load"
    assert verdict.signature.kind.startswith("error ") and verdict.metrics["reference"] == "failed"
    assert str(unknown_op.parent) not in verdict.reason and "NoSuchOp" in verdict.reason, "no folder that goes"
    assert verdict.log and "NoSuchOp" in (here.run_folder / verdict.log).read_text()
    # the reference cannot run the whole model, so it says nothing about candidates
    check.settle(verdict)
    assert check.check(here.candidate(unknown_op, X)).outcome is Outcome.FAIL


def test_a_reference_that_may_not_run_candidates_was_not_asked(here: Here, unknown_op: Path) -> None:
    check = make(here, AutoChecker(), strategy=PrecisionSettings())
    assert check.check(here.candidate(unknown_op, X)).metrics["reference"] == "not asked"


def test_what_the_reference_cannot_run_either_is_invalid(here: Here, overflow: Path, reshape: Path) -> None:
    check = make(here, AutoChecker(), REFERENCE, PLAIN)
    assert "optimization=none" in check.describe()
    whole = check.check(here.candidate(overflow, {"x": HALF}))
    assert whole.outcome is Outcome.FAIL and whole.signature and str(whole.signature) == "infer: inf"
    assert whole.metrics["reference"] == "ran" and whole.metrics["output"] == "y"
    check.settle(whole)
    verdict = check.check(here.candidate(reshape, X))
    assert verdict.outcome is Outcome.UNRESOLVED and "reference cannot run it either" in verdict.reason
    assert check.check(here.candidate(overflow, {"x": HALF / 4})).outcome is Outcome.PASS


@pytest.mark.parametrize("checker", [CompareChecker(), AutoChecker()])
def test_samples_that_a_search_does_not_see_are_judged_by_themselves_in_the_same_run(
    here: Here, unknown_op: Path, monkeypatch: pytest.MonkeyPatch, checker: CheckerSettings
) -> None:
    check, runs, run = make(here, checker, strategy=PrecisionSettings()), list[int](), BackendRunner.run

    def counted(self: BackendRunner, path: Path, samples: Any, *args: Any, **more: Any) -> BackendRun:
        runs.append(len(samples))
        return run(self, path, samples, *args, **more)

    monkeypatch.setattr(BackendRunner, "run", counted)
    right, other = {"x": np.abs(X["x"])}, {"y": np.abs(X["x"])}
    for feeds, first, second in [((right, right, X), "pass", "fail"), ((X, right, right), "fail", "pass")]:
        verdict = check.check(here.candidate(here.relu, *feeds, expected=other, unseen=1, trial=Trial.of([])))
        assert (verdict.outcome, verdict.metrics[UNSEEN]["outcome"]) == (first, second)
        assert verdict.metrics["outputs"] == 2 and verdict.metrics[UNSEEN]["metrics"]["outputs"] == 1
    assert runs == [3, 3]
    # of a run that fails it is not known which sample is why
    failed = check.check(here.candidate(unknown_op, X, X, expected=other, unseen=1))
    assert failed.outcome is Outcome.FAIL and UNSEEN not in failed.metrics and runs[2:] == [2, 1]


def test_a_missing_feed_is_no_answer(here: Here) -> None:
    verdict = make(here, RunsChecker()).check(here.candidate(here.relu))
    assert verdict.outcome is Outcome.UNRESOLVED and "'x'" in verdict.reason


def test_settings_that_cannot_be_followed(here: Here) -> None:
    check = make(here, RunsChecker(), OnnxRuntimeBackend(providers=["NoSuchProvider"]))
    with pytest.raises(UsageError, match="NoSuchProvider"):
        check.check(here.candidate(here.relu, X))


class TestFinite:
    def test_the_reference_excuses_what_it_has_too(self, here: Here, overflow: Path, tmp_path: Path) -> None:
        mask = model(
            [helper.make_node("Div", ["x", "zero"], ["y"])],
            tmp_path / "mask.onnx",
            weights={"zero": np.zeros(4, np.float16)},
            dtype=TensorProto.FLOAT16,
        )
        check = make(here, FiniteChecker(), REFERENCE, PLAIN)
        whole = check.check(here.candidate(overflow, {"x": HALF}))
        check.settle(whole)
        verdict = check.check(here.candidate(mask, {"x": HALF}))
        assert verdict.outcome is Outcome.PASS and "neither is the reference" in verdict.reason

    @pytest.mark.parametrize(
        ("nan", "inf", "kind"), [(True, True, "nan"), (False, True, "inf"), (True, False, "nan"), (False, False, None)]
    )
    def test_what_counts(self, here: Here, tmp_path: Path, nan: bool, inf: bool, kind: str | None) -> None:
        path = model(
            [helper.make_node("Div", ["x", "zero"], ["y"])],
            tmp_path / "m.onnx",
            weights={"zero": np.zeros(1, np.float32)},
        )
        policies = [NonFiniteOutput.fail if fails else NonFiniteOutput.ignore for fails in (nan, inf)]
        check = make(here, FiniteChecker(nan=policies[0], inf=policies[1]))
        verdict = check.check(here.candidate(path, {"x": np.array([0, 1, -1, 2], np.float32)}))
        assert (verdict.signature.kind if verdict.signature else None) == kind


class TestCompare:
    def test_a_wrong_value(self, here: Here, overflow: Path) -> None:
        small = {"x": np.array([1, 2, 3, 4], np.float16)}
        check = make(here, CompareChecker(), REFERENCE, PLAIN)
        assert check.check(here.candidate(overflow, small)).outcome is Outcome.PASS
        verdict = check.check(here.candidate(overflow, small, {"x": HALF}))
        assert verdict.outcome is Outcome.FAIL and str(verdict.signature) == "compare: inf"
        assert verdict.metrics["sample"] == 1 and verdict.metrics["output"] == "y"

    def test_golden_values_made_ahead(self, here: Here) -> None:
        check = make(here, CompareChecker(golden=Golden.ahead), ORT, OnnxRuntimeBackend(providers=["NoSuchProvider"]))
        right, wrong = np.array([0, 2, 3, 4], np.float32), np.array([0, 2, 3, 9], np.float32)
        assert check.check(here.candidate(here.relu, X, expected={"y": right})).outcome is Outcome.PASS
        verdict = check.check(here.candidate(here.relu, X, expected={"y": wrong}))
        assert str(verdict.signature) == "compare: mismatch" and verdict.metrics["max_abs"] == 5
        assert verdict.metrics["reference"] == "recorded"

    def test_golden_values_that_are_missing_are_run(self, here: Here) -> None:
        check = make(here, CompareChecker(golden=Golden.ahead))
        verdict = check.check(here.candidate(here.relu, X))
        assert verdict.outcome is Outcome.PASS and verdict.metrics["reference"] == "ran"

    def test_a_broken_reference_is_no_answer(self, here: Here, tmp_path: Path) -> None:
        # an operator of ONNX Runtime's own
        path = model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], tmp_path / "gelu.onnx")
        check = make(here, CompareChecker(), ORT, REFERENCE)
        verdict = check.check(here.candidate(path, X))
        assert verdict.outcome is Outcome.UNRESOLVED and "the reference cannot run it" in verdict.reason

    def test_only_some_outputs(self, here: Here, tmp_path: Path) -> None:
        overflow = [helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Sub", ["t", "x"], ["bad"])]
        nodes = [helper.make_node("Relu", ["x"], ["good"]), *overflow]
        half = {"dtype": TensorProto.FLOAT16}
        path = model(nodes, tmp_path / "two.onnx", outputs=("good", "bad"), **half)
        feeds = {"x": HALF}
        assert make(here, CompareChecker(), REFERENCE).check(here.candidate(path, feeds)).outcome is Outcome.FAIL
        check = make(here, CompareChecker(outputs=["good"]), REFERENCE)
        whole = check.check(here.candidate(path, feeds))
        assert whole.outcome is Outcome.PASS and whole.metrics["left_out"] == ["bad"]
        check.settle(whole)
        # the one that is left out never counts, inner values always do
        excluded = model(overflow, tmp_path / "excluded.onnx", outputs=("bad",), **half)
        assert check.check(here.candidate(excluded, feeds)).outcome is Outcome.UNRESOLVED
        overflow[1].output[0] = "inner"
        inner = model(overflow, tmp_path / "inner.onnx", outputs=("inner",), **half)
        assert check.check(here.candidate(inner, feeds)).outcome is Outcome.FAIL
        with pytest.raises(UsageError, match=r"godo.*good, bad"):
            make(here, CompareChecker(outputs=["godo"])).check(here.candidate(path, feeds))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("other", "outcome"), [(4096, Outcome.FAIL), (0, Outcome.UNRESOLVED)])
def test_a_sample_that_no_side_can_run_hides_no_failure_of_another(
    here: Here, tmp_path: Path, turned: bool, other: int, outcome: Outcome
) -> None:
    """At 4096 float16 rounds a sum away; at nine times that an index is out of range on both sides."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["t"]),
        helper.make_node("Sub", ["t", "x"], ["d"]),
        helper.make_node("Div", ["x", "row"], ["s"]),
        helper.make_node("Cast", ["s"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["x", "i"], ["g"]),
    ]
    weights = {"one": np.ones(1, np.float16), "row": np.full(1, 4096, np.float16)}
    path = model(nodes, tmp_path / "m.onnx", weights=weights, outputs=("d", "g"), dtype=TensorProto.FLOAT16)
    check = make(here, CompareChecker(), REFERENCE, PLAIN)
    whole = check.check(here.candidate(path, {"x": np.full(4, 4096, np.float16)}))
    assert whole.outcome is Outcome.FAIL and whole.metrics["reference"] == "ran"
    check.settle(whole)
    samples = [{"x": np.full(4, value, np.float16)} for value in (9 * 4096, other)]
    verdict = check.check(here.candidate(path, *(samples[::-1] if turned else samples)))
    assert verdict.outcome is outcome
    assert outcome is Outcome.UNRESOLVED or verdict.metrics["sample"] == (0 if turned else 1)


class TestAuto:
    def test_the_failing_stage_is_fixed(self, here: Here, overflow: Path, unknown_op: Path) -> None:
        check = make(here, AutoChecker(), REFERENCE, PLAIN)
        failing = check.check(here.candidate(unknown_op, X))
        check.settle(failing)
        # only loading and running counts from now on
        assert check.check(here.candidate(overflow, {"x": HALF})).outcome is Outcome.PASS

    @pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min])
    @pytest.mark.parametrize(("last", "fails"), [("Identity", False), ("LogSoftmax", False), ("Neg", True)])
    def test_a_mask_that_reaches_an_output_is_meant(
        self, here: Here, tmp_path: Path, low: float, last: str, fails: bool
    ) -> None:
        mask = np.array([0, low, 0, 0], np.float32)
        nodes = [helper.make_node("Add", ["x", "mask"], ["m"]), helper.make_node("Add", ["m", "mask"], ["n"])]
        path = model([*nodes, helper.make_node(last, ["n"], ["y"])], tmp_path / "m.onnx", weights={"mask": mask})
        verdict = make(here, AutoChecker()).check(here.candidate(path, X))
        assert verdict.outcome is (Outcome.FAIL if fails else Outcome.PASS)
        assert make(here, FiniteChecker()).check(here.candidate(path, X)).outcome is Outcome.FAIL
        beside = tmp_path / "beside.onnx"
        onnx.save(onnx.load(path), beside, save_as_external_data=True, location="w", size_threshold=0)
        assert make(here, AutoChecker()).check(here.candidate(beside, X)).outcome is verdict.outcome


class TestOwnModels:
    def test_a_target_of_its_own_is_for_whole_models(self, here: Here) -> None:
        target = OnnxRuntimeBackend(model=str(here.relu))
        with pytest.raises(UsageError, match=r"target\.model"):
            make(here, RunsChecker(), target)
        whole = RepeatSettings()
        assert make(here, RunsChecker(), target, strategy=whole).check(here.candidate(None, X)).outcome is Outcome.PASS

    @pytest.mark.parametrize("rule", [AutoChecker(), CompareChecker(), CompareChecker(golden=Golden.ahead)])
    def test_what_a_reference_of_its_own_has_is_compared(
        self, here: Here, tmp_path: Path, rule: CheckerSettings
    ) -> None:
        nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
        path = model(nodes, tmp_path / "two.onnx", outputs=("y", "z"))
        check = make(here, rule, ORT, OnnxRuntimeBackend(model=str(path)))
        # z has no partner there
        wrong = check.check(here.candidate(path, X, expected={"y": X["x"]}))
        assert str(wrong.signature) == "compare: mismatch" and wrong.metrics["output"] == "y"
        right = check.check(here.candidate(path, X, expected={"y": np.maximum(X["x"], 0)}))
        assert right.outcome is Outcome.PASS and right.metrics["outputs"] == 1
        assert check.check(here.candidate(path, X)).outcome is Outcome.UNRESOLVED

    def test_an_infinity_that_a_reference_of_its_own_has_too_is_meant(self, here: Here, tmp_path: Path) -> None:
        path = model([helper.make_node("Log", ["x"], ["y"])], tmp_path / "log.onnx")
        check = make(here, FiniteChecker(), ORT, OnnxRuntimeBackend(model=str(path)))
        feeds = {"x": np.array([0, 1, 2, 3], np.float32)}
        with np.errstate(divide="ignore"):
            assert check.check(here.candidate(path, feeds, expected={"y": np.log(feeds["x"])})).outcome is Outcome.PASS
        assert str(check.check(here.candidate(path, feeds, expected={"y": feeds["x"]})).signature) == "infer: inf"
        assert str(check.check(here.candidate(path, feeds)).signature) == "infer: inf"


class TestAutomaticTolerance:
    def build(self, here: Here, **settings: object) -> Checker:
        return make(here, CompareChecker(tolerance=Tolerance.auto, **settings), REFERENCE, PLAIN)  # type: ignore[arg-type]

    def test_between_noise_and_failure(self, here: Here, tmp_path: Path) -> None:
        path = model(
            [helper.make_node("Add", ["x", "big"], ["t"]), helper.make_node("Sub", ["t", "big"], ["y"])],
            tmp_path / "cancel.onnx",
            weights={"big": np.full(1, 512, np.float16)},
            dtype=TensorProto.FLOAT16,
        )
        check = self.build(here)
        whole = check.check(here.candidate(path, {"x": np.array([1.2, 2.3, 3.4, 1.7], np.float16)}))
        assert whole.outcome is Outcome.FAIL, whole
        assert whole.metrics["error"] > 10 * whole.metrics["noise"] > 0
        check.settle(whole)
        # half of the error is still beyond the limit, a rounding is not
        again = check.check(here.candidate(path, {"x": np.array([1.2, 2.3, 3.4, 1.7], np.float16)}))
        assert again.outcome is Outcome.FAIL
        assert again.metrics["noise"] < again.metrics["limit"] < whole.metrics["error"]
        # the failing model itself is measured in that tolerance, and another run that is told of it measures in it too
        assert whole.metrics["limit"] == again.metrics["limit"]
        told = self.build(here, failing_error=2 * whole.metrics["error"])
        handed_on = told.check(here.candidate(path, {"x": np.array([1.2, 2.3, 3.4, 1.7], np.float16)}))
        assert handed_on.metrics["limit"] == pytest.approx(2**0.5 * again.metrics["limit"])
        told.settle(whole)
        assert getattr(told, "failing_error") == 2 * whole.metrics["error"] and not told.reset()  # noqa: B009
        fine = check.check(here.candidate(path, {"x": np.array([1, 2, 3, 2], np.float16)}))
        assert fine.outcome is Outcome.PASS

    def test_a_healthy_model_passes(self, here: Here, tmp_path: Path) -> None:
        nodes = [helper.make_node("Softmax", ["x"], ["t"]), helper.make_node("Exp", ["t"], ["y"])]
        path = model(nodes, tmp_path / "softmax.onnx", shape=(4,))
        verdict = make(here, CompareChecker(tolerance=Tolerance.auto), REFERENCE, ORT).check(here.candidate(path, X))
        assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.parametrize("changed", ["custom_ops", "provider_libraries", "model"])
def test_a_file_that_a_backend_names_makes_another_context(here: Here, tmp_path: Path, changed: str) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    named: Any = {"provider_libraries": {"Provider": str(file)}, "custom_ops": [str(file)], "model": str(file)}
    reference = OnnxRuntimeBackend(**{changed: named[changed]})
    check = make(here, CompareChecker(), ORT, reference)
    before = check.identity()
    assert check.identity() == before != make(here, CompareChecker(rtol=0.5), ORT, reference).identity()
    file.write_text("two")
    assert check.identity() != before


def test_an_unknown_checker_lists_the_known_ones(here: Here) -> None:
    with pytest.raises(UsageError, match=r"checker\.name=no: .*auto, builds, command"):
        make(here, CheckerSettings(name="no"))


def test_what_takes_the_machines_memory_is_not_judged(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker takes is measured in its own tests; a limit of the user's is another matter: there it fails."""
    said, limits = iter([OUT_OF_MEMORY, "memory", "memory"]), list[object]()  # the last is the reference's

    def call(*_: object, memory_mb: float | None, **__: object) -> Reply:
        limits.append(memory_mb)
        return Reply(None, None, next(said), 1.0, 1.0)

    monkeypatch.setattr(here.pool, "call", call)
    monkeypatch.setattr(machine, "share_mb", lambda: 400)
    with pytest.raises(NotTried, match="400 MiB"):
        make(here, RunsChecker()).check(here.candidate(here.relu, X))
    verdict = make(here, RunsChecker(memory_mb=400)).check(here.candidate(here.relu, X))
    assert verdict.outcome is Outcome.FAIL and verdict.signature and verdict.signature.kind == "memory"
    assert limits[:2] == [None, 400]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(None, None, OUT_OF_MEMORY, 1.0, 1.0), NotTried),
        (Reply(None, Failure("untried", NOT_READY, "the GPU cannot be used"), None, 1.0, 1.0), NotTried),
        (Reply(None, Failure("untried", "Refused", "an address"), None, 1.0, 1.0), None),
    ],
)
def test_a_reference_that_was_not_tried_is_no_witness(here: Here, reply: Reply, error: type[Exception] | None) -> None:
    """Neither for the target (it fails only here) nor against it (it fails everywhere)."""
    builds = BuildsChecker()
    check = make(here, builds, TensorRtBackend(), as_reference(TensorRtBackend)())
    assert isinstance(check, RuntimeCheck)
    failed = Verdict(Outcome.FAIL, Signature("build", "error ERROR"))

    if error:
        with pytest.raises(error):
            check._reference._ran(reply)
    else:
        assert check._against(check._reference._ran(reply), failed).outcome is Outcome.UNRESOLVED
