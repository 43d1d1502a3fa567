"""What steps are asked for, from what is known; nothing is run."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runner.exit_codes import Status, UsageError
from runner.jobs.summary import UNTAKEN
from runner.jobs.triage.run import combined, said_once
from runner.jobs.triage.step_settings import PATIENCE, StepSettings
from runner.jobs.triage.transcript import Ended, Known, Situation, situation_of
from runner.reference.hints import HIDDEN_ROUNDING, HINTS, RANDOM_INPUTS, SIZES
from runner.report.summary import Summary, summary_of
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, Optimization, Rounding, TensorRtBackend
from runner.schema.checker import AutoChecker, CheckerSettings, CompareChecker, Tolerance
from runner.schema.inputs import FilesInputs, InputsSettings, RandomInputs
from runner.schema.root import BudgetSettings, Settings
from runner.schema.strategy import TriageSettings
from tests.jobs.models import saved

SETTINGS = Settings(
    model="net.onnx",
    strategy=TriageSettings(),
    checker=AutoChecker(timeout=5.0),
    target=OnnxRuntimeBackend(),
    reference=OnnxRuntimeBackend(),
    inputs=RandomInputs(),
)


def asked(
    name: str, kind: str, *, failed: str = "stands", checker: CheckerSettings | None = None, low: str = ""
) -> Settings:
    """Return the settings of a step after ``failed`` was seen to fail in this way."""
    signature = {"stage": "infer", "kind": kind, "error": 0.25}
    seen = {"status": "found", "outcomes": {"fail": 2}, "signature": signature}
    before = [] if failed == "stands" else [Ended("stands", "repeat", "s", "w", Summary(outcomes={"pass": 2}))]
    layers = Ended("layerwise", "layerwise", "l", "w", Summary("found", culprits=("a",)))
    known = Known(Situation(low=low), (), ended=(*before, Ended(failed, "repeat", "s", "w", summary_of(seen)), layers))
    settings = replace(SETTINGS, checker=checker or SETTINGS.checker)
    settings = replace(settings, reference=replace(SETTINGS.reference, model="original.onnx" if low else None))
    return StepSettings(settings, Path()).of(name, known, BudgetSettings())


def test_other_values_of_the_shapes_that_were_given(tmp_path: Path) -> None:
    saved(tmp_path / "net.onnx", "g (float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    np.savez(tmp_path / "x.npz", x=np.zeros((7, 3), np.float32))
    given = replace(SETTINGS, model=str(tmp_path / "net.onnx"), inputs=FilesInputs(path=str(tmp_path / "x.npz")))
    assert StepSettings(given, tmp_path).seed(1).shapes == {"x": [7, 3]}


def test_values_of_a_model_that_hangs_are_not_waited_for_longer_than_a_check_allows() -> None:
    assert asked("reduce", "timeout").inputs.timeout == PATIENCE * 5
    assert asked("reduce", "nan").inputs.timeout == RandomInputs().timeout
    assert asked("reduce", "timeout", checker=AutoChecker(timeout=None)).inputs.timeout == RandomInputs().timeout


@pytest.mark.parametrize(("kind", "name"), [("nan", "finite"), ("inf", "finite"), ("mismatch", "auto")])
def test_a_part_is_asked_for_the_nan_or_inf_under_study(kind: str, name: str) -> None:
    """The reference may have it there too, which a comparison takes for right."""
    made = asked("extract", kind).checker
    assert (made.name, made.timeout) == (name, 5.0)
    assert asked("reduce", kind).checker.name == "auto"  # which sees how the whole fails
    assert asked("extract", kind, checker=CompareChecker()).checker.name == "compare"


def test_all_steps_judge_by_the_tolerance_that_the_first_failure_was_judged_by() -> None:
    for name in ("inputs", "layerwise", "extract", "reduce", "precision", "passes"):
        made = asked(name, "mismatch", checker=CompareChecker(tolerance=Tolerance.auto), low="quantized").checker
        assert isinstance(made, CompareChecker) and made.failing_error == 0.25, name


@pytest.mark.parametrize(("seconds", "model"), [(1.0, "net.onnx"), (30.0, "reduced.onnx")])
def test_releases_are_asked_about_the_whole_unless_that_is_slow(tmp_path: Path, seconds: float, model: str) -> None:
    """What a release fuses depends on what is around: the whole may be good where the reduced model is not."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "reduced.onnx").touch()
    seen = {"status": "found", "outcomes": {"fail": 2}, "seconds": {"checking": 2 * seconds}}
    cut = Summary("found", culprits=("a",), model="reduced.onnx")
    ended = (Ended("stands", "repeat", "s", "w", summary_of(seen)), Ended("reduce", "reduce", "r", "w", cut))
    made = StepSettings(SETTINGS, tmp_path).of("versions", Known(Situation(), (), ended=ended), BudgetSettings())
    assert Path(made.model or "").name == model


@pytest.mark.parametrize(
    ("target", "said"), [(TensorRtBackend(), "which package target=tensorrt comes from"), (OnnxRuntimeBackend(), "")]
)
def test_releases_of_another_package_than_the_targets_are_not_asked(target: BackendSettings, said: str) -> None:
    settings = replace(SETTINGS, target=target, strategy=TriageSettings(versions=">=1.18"))
    if not said:
        assert situation_of(settings).releases == "strategy.versions=>=1.18"
        return
    with pytest.raises(UsageError, match=said):
        situation_of(settings)


@pytest.mark.parametrize(("failed", "rounding"), [("rounded", Rounding.on), ("inputs", Rounding.auto)])
def test_what_follows_is_asked_as_it_failed(failed: str, rounding: Rounding) -> None:
    for name in ("layerwise", "reduce", "workaround"):
        made = asked(name, "nan", failed=failed)
        assert isinstance(made.target, OnnxRuntimeBackend) and isinstance(made.inputs, RandomInputs)
        assert made.target.rounding is rounding and made.inputs.seed == RandomInputs().seed + (failed == "inputs")


def test_a_plain_run_is_the_references_of_the_file_and_only_has_to_be_finite() -> None:
    """A target that computes otherwise takes no part, and the reference's settings stay as they are."""
    own = replace(SETTINGS, reference=OnnxRuntimeBackend(optimization=Optimization.none, threads=3))
    known = Known(Situation(), (), ended=(Ended("stands", "repeat", "s", "w", Summary(outcomes={"fail": 2})),))
    made = StepSettings(own, Path()).of("plain", known, BudgetSettings())
    assert isinstance(made.target, OnnxRuntimeBackend) and made.target == own.reference
    assert (made.model, made.checker.name, made.strategy.name) == ("net.onnx", "finite", "repeat")
    engine = replace(own, reference=TensorRtBackend())  # which recorded nothing
    assert StepSettings(engine, Path()).of("plain", known, BudgetSettings()).target.name == "onnxruntime"


@pytest.mark.parametrize(("given", "kept"), [(RandomInputs(), True), (FilesInputs(path=["x.npz"]), False)])
def test_that_the_inputs_are_random_is_said_only_of_a_triage_whose_own_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: InputsSettings, kept: bool
) -> None:
    """A step tries random ones where others were given, and hints as any run does; of rounding the triage asks."""
    hint = f"{RANDOM_INPUTS}; {HIDDEN_ROUNDING}"
    step = {"warnings": [hint, "another"], "outcomes": {"fail": 2}}
    known = Known(Situation(), (), ended=(Ended("stands", "repeat", "s", "w", summary_of(step)),))
    settings = replace(SETTINGS, inputs=given)
    told = combined(settings, tmp_path, known, 1.0, None).warnings
    assert told == ((RANDOM_INPUTS, "another") if kept else ("another",))
    logging.getLogger().addHandler(caplog.handler)
    with said_once(HINTS):
        logging.getLogger("steps").warning("%s", hint)
        logging.getLogger("steps").warning("another")
    logging.getLogger().removeHandler(caplog.handler)
    assert caplog.messages == ["another"], "the last screen has the hint"


def test_a_branch_that_some_step_takes_is_not_called_untaken(tmp_path: Path) -> None:
    told = [f"{UNTAKEN}a, so", f"{UNTAKEN}b, so"]
    steps = [{"strategy": "repeat", "outcomes": {"pass": 2}, "warnings": one} for one in (told, told[:1])]
    names = zip(("stands", "inputs"), steps, strict=True)
    ended = tuple(Ended(name, "repeat", "s", "w", summary_of(step)) for name, step in names)
    assert combined(SETTINGS, tmp_path, Known(Situation(), (), ended=ended), 1.0, None).warnings[-1:] == (told[0],)


def test_sizes_are_told_once_they_are_settled(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger().addHandler(caplog.handler)
    with said_once() as filters:
        for settled, size in ((False, 1), (True, 64), (True, 64)):
            for one in filters:
                one.settled = settled
            logging.getLogger("steps").warning("%sN=%d", SIZES, size)
    logging.getLogger().removeHandler(caplog.handler)
    assert caplog.messages == [f"{SIZES}N=64"]


@pytest.mark.parametrize(
    ("reduced", "helps", "status"),
    [("suspected", "found", "suspected"), ("found", "nothing_to_find", "found"), ("could_not_judge", "found", "found")],
)
def test_a_triage_ends_as_the_step_whose_nodes_it_names(tmp_path: Path, reduced: str, helps: str, status: str) -> None:
    """What helps besides makes no cause of nodes that were not shown to be one."""
    steps = {
        "stands": {"outcomes": {"fail": 2}},
        "reduce": {
            "status": reduced,
            "culprits": [] if reduced == "could_not_judge" else ["a"],
            "minimality": "1-minimal" if reduced == "found" else "window",
        },
        "workaround": {"status": helps},
    }
    ended = tuple(Ended(name, name, f"steps/{name}", "w", summary_of(result)) for name, result in steps.items())
    summary = combined(SETTINGS, tmp_path, Known(Situation(), (), ended=ended), 1.0, None)
    assert (summary.status, summary.exit_code) == (status, Status[status].exit_code)
    assert summary.triage is not None
    assert summary.triage.smallest == (reduced == "found")
