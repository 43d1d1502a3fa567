from __future__ import annotations

import pytest

from runner.checkers.exit_and_output import uncaught
from runner.schema.checker import SameFailure
from runner.verdict import LISTED, SAYS_SO, Raised, Signature, Verdict, relative
from strategies.search import Outcome

PYBIND = "onnxruntime.capi.onnxruntime_pybind11_state"


def trace(ended: str, *frames: tuple[str, int]) -> str:
    listed = "".join(f'  File "{path}", line {line}, in f\n    code()\n' for path, line in frames)
    return f"Traceback (most recent call last):\n{listed}{ended}\n"


SITE = "/v/lib/python3.11/site-packages"
MINE, ORT = ("/home/u/check.py", 7), (f"{SITE}/onnxruntime/capi/onnxruntime_inference_collection.py", 220)
REFERENCE = (f"{SITE}/onnx/reference/op_run.py", 466)

MISSING = "ValueError: Required inputs (['t3']) are missing from input feed (['img'])."
GATHER = (
    f"{PYBIND}.InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while "
    "running Gather node. Name:'gather_3' Status Message: indices element out of data bounds, idx=9"
)


@pytest.mark.parametrize(
    ("output", "where", "about"),
    [
        (trace("AssertionError", MINE), ("AssertionError at check.py:7",), "check"),
        (trace("KeyError: 'logits'", MINE), ("KeyError at check.py:7",), "feeds: a missing key"),
        (trace("IndexError: list index out of range", MINE), ("IndexError at check.py:7",), "check"),
        (trace(MISSING, MINE, ORT), ("ValueError at check.py:7",), "feeds: a missing input"),
        (trace(GATHER, MINE, ORT), ("InvalidArgument at check.py:7",), "model"),
        *(
            (trace(f"{PYBIND}.InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : {said}", MINE, ORT),
             ("InvalidArgument at check.py:7",), f"feeds: {what}")
            for said, what in [
                ("Invalid input name: img", "an unknown input"),
                ("Invalid Feed Input Name:img", "an unknown input"),
                ("Invalid rank for input: x Got: 1 Expected: 2 Please fix either", "the rank of an input"),
                ("Got invalid dimensions for input: x for the following indices\n index: 0 Got: 1 Expected: 2",
                 "the dimensions of an input"),
                ("Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))",
                 "the type of an input"),
                ("Invalid output name:logits", "an unknown output"),
            ]
        ),
        (trace("RuntimeError: Unable to find input 'x' in known results ['', 'img']", MINE, REFERENCE),
         ("RuntimeError at check.py:7",), "feeds: a missing input"),
        (trace("TypeError: Issues with types <class 'x'> (binary operator 'MatMul').", MINE, REFERENCE),
         ("TypeError at check.py:7",), "model"),
        (trace("IndexError: index 9 is out of bounds", MINE, REFERENCE), ("IndexError at check.py:7",), "model"),
        (trace("ValueError: This ORT build has providers", MINE, ORT), ("ValueError at check.py:7",), "check"),
        (trace("KeyError: 'logits is not a file in the archive'", MINE, (f"{SITE}/numpy/lib/npyio.py", 3)),
         ("KeyError at check.py:7",), "feeds: a name that an npz does not hold"),
        (trace("onnx.onnx_cpp2py_export.checker.ValidationError: No Op registered for Foo", MINE),
         ("ValidationError at check.py:7",), "model"),
        (trace("polygraphy.exception.exception.PolygraphyException: Invalid Engine.", MINE),
         ("PolygraphyException at check.py:7",), "model"),
        ("[11/22/2026-01:02:03] [TRT] [E] 4: Error Code 4: Internal Error\n"
         + trace("AttributeError: 'NoneType' object has no attribute 'x'", MINE),
         ("AttributeError at check.py:7",), "model"),
        (trace(f"{PYBIND}.NoSuchFile: [ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model failed", MINE, ORT),
         ("NoSuchFile at check.py:7",), "check"),
        # numpy's message begins on the next line, and has blank lines in it
        (trace("AssertionError: \nNot equal to tolerance rtol=0\n\n(shapes (2, 3), (2, 4) mismatch)\n ACTUAL: ..",
               MINE, (f"{SITE}/numpy/testing/_private/utils.py", 880)),
         ("AssertionError at check.py:7",), "feeds: the shape of the values to compare with"),
        # a child's exception and its parent's
        (trace(MISSING, MINE, ORT) + trace("subprocess.CalledProcessError: Command", ("/u/parent.py", 3)),
         ("ValueError at check.py:7", "CalledProcessError at parent.py:3"), "feeds: a missing input"),
        # one that was raised while another was handled
        (trace(GATHER, MINE, ORT) + "\nDuring handling of the above exception, another exception occurred:\n\n"
         + trace("RuntimeError: it does not run", ("/home/u/check.py", 9)),
         ("InvalidArgument at check.py:7", "RuntimeError at check.py:9"), "model"),
        # swallowed, and printed
        (f"error: {MISSING.partition(': ')[2]}", (), "feeds: a missing input"),
        ("error: [ONNXRuntimeError] : 1 : FAIL : Type Error", ("FAIL",), "model"),
        ("max diff 0.5", None, None),
    ],
)  # fmt: skip
def test_what_ended_a_check(output: str, where: tuple[str, ...] | None, about: str | None) -> None:
    died = uncaught(f"some line before\n{output}")
    assert (died and died.raised) == (None if where is None else Raised(where, str(about)))


LONG = """\
============================= test session starts ==============================
=================================== FAILURES ===================================
__________________________________ test_same ___________________________________

    def test_same():
>       helper()

test_check.py:12:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

>       raise ValueError("Required inputs (['x']) are missing from input feed ([]).")
E       ValueError: Required inputs (['x']) are missing from input feed ([]).

/v/lib/python3.11/site-packages/onnxruntime/capi/x.py:220: ValueError
=========================== short test summary info ============================
FAILED test_check.py::test_same - ValueError: Required inputs
"""
SHORT = """\
=================================== FAILURES ===================================
__________________________________ test_same ___________________________________
test_check.py:8: in test_same
    assert abs(a - b).max() < 1e-3
E   assert np.float64(0.5) < 0.001
=========================== short test summary info ============================
"""


@pytest.mark.parametrize(
    ("output", "raised"),
    [
        (LONG, Raised(("ValueError at test_check.py:12",), "feeds: a missing input")),
        (SHORT, Raised(("AssertionError at test_check.py:8",), "check")),
        (SHORT.replace("E   assert np.float64(0.5) < 0.001", f"E   {GATHER}"),
         Raised(("InvalidArgument at test_check.py:8",), "model")),
    ]
)  # fmt: skip
def test_what_pytest_shows(output: str, raised: Raised) -> None:
    died = uncaught(output)
    assert died and died.raised == raised and died.last


def signature(raised: Raised | None, kind: str = "exit 1") -> Signature:
    return Signature("check", kind, "text", raised)


MISMATCH = Raised(("AssertionError at check.py:9",), "check")
MISFIT = Raised(("ValueError at check.py:7",), "feeds: a missing input")
CRASH = Raised(("Fail at check.py:7",), "model")
EARLIER = Raised(("Fail at check.py:5",), "model")
OWN = Raised(("IndexError at check.py:8",), "check")


@pytest.mark.parametrize(
    ("studied", "now", "outcome"),
    [
        (MISMATCH, MISMATCH, Outcome.FAIL),
        (MISMATCH, MISFIT, Outcome.UNRESOLVED),
        (MISMATCH, OWN, Outcome.UNRESOLVED),
        (MISMATCH, CRASH, Outcome.DIFFERENT),
        (MISMATCH, None, Outcome.FAIL),  # it has judged, by another line
        (CRASH, None, Outcome.DIFFERENT),
        (MISFIT, None, Outcome.DIFFERENT),
        (None, None, Outcome.FAIL),
        (None, MISFIT, Outcome.UNRESOLVED),
        (None, OWN, Outcome.UNRESOLVED),
        (None, CRASH, Outcome.DIFFERENT),
        (CRASH, CRASH, Outcome.FAIL),
        (CRASH, EARLIER, Outcome.DIFFERENT),
        (CRASH, MISFIT, Outcome.UNRESOLVED),
        (MISFIT, MISFIT, Outcome.FAIL),
    ],
)
def test_an_exception_in_the_light_of_the_original(
    studied: Raised | None, now: Raised | None, outcome: Outcome
) -> None:
    verdict = Verdict(Outcome.FAIL, signature(now), "said")
    assert relative(verdict, signature(studied), SameFailure.kind).outcome is outcome
    assert "said" in relative(verdict, signature(studied), SameFailure.kind).reason


@pytest.mark.parametrize(
    ("studied", "now", "caught", "outcome"),
    [
        (None, OWN, OWN, Outcome.FAIL),
        (MISMATCH, Raised((*OWN.where, *MISMATCH.where), "check"), OWN, Outcome.FAIL),
        (MISMATCH, Raised((*MISFIT.where, *MISMATCH.where), MISFIT.about), MISFIT, Outcome.FAIL),
        (None, Raised((), "feeds: a missing key"), Raised((), "feeds: a missing key"), Outcome.FAIL),
        (Raised((*OWN.where, *MISMATCH.where), "check"), MISMATCH, OWN, Outcome.FAIL),
        (None, OWN, MISFIT, Outcome.UNRESOLVED),
        (None, MISFIT, OWN, Outcome.UNRESOLVED),
        (MISMATCH, Raised((*MISFIT.where, *OWN.where), MISFIT.about), MISFIT, Outcome.UNRESOLVED),
        (MISMATCH, MISFIT, MISFIT, Outcome.DIFFERENT),
    ],
)
def test_what_a_check_shows_where_it_passes_is_no_mistake(
    studied: Raised | None, now: Raised, caught: Raised, outcome: Outcome
) -> None:
    verdict = Verdict(Outcome.FAIL, signature(now))
    assert relative(verdict, signature(studied), SameFailure.kind, caught=caught).outcome is outcome


def test_what_a_check_may_have_caught_on_the_whole_model_need_not_come_again() -> None:
    died = uncaught(trace("RuntimeError: cannot simplify", MINE) + "max diff 0.5\n")
    assert died and died.raised.went_on
    verdict = Verdict(Outcome.FAIL, signature(None))
    assert relative(verdict, signature(died.raised), SameFailure.kind).outcome is Outcome.FAIL
    assert Signature.from_json(signature(died.raised).to_json()).raised.went_on  # type: ignore[union-attr]
    ended = uncaught(trace("RuntimeError: cannot simplify", MINE))
    assert ended and not ended.raised.went_on


@pytest.mark.parametrize("studied", [None, CRASH, MISMATCH])
@pytest.mark.parametrize(
    ("now", "outcome"), [(None, Outcome.FAIL), (OWN, Outcome.UNRESOLVED), (EARLIER, Outcome.DIFFERENT)]
)
def test_a_listed_code_is_a_failure_unless_an_exception_shows(
    studied: Raised | None, now: Raised | None, outcome: Outcome
) -> None:
    verdict = Verdict(Outcome.FAIL, signature(now, LISTED))
    assert relative(verdict, signature(studied, LISTED), SameFailure.kind).outcome is outcome


def test_what_a_function_returns_is_what_it_asserts() -> None:
    said, raised = signature(None, SAYS_SO), signature(MISMATCH, "raised")
    assert relative(Verdict(Outcome.FAIL, said), raised, SameFailure.kind).outcome is Outcome.FAIL
    assert relative(Verdict(Outcome.FAIL, raised), said, SameFailure.kind).outcome is Outcome.UNRESOLVED
    crash = signature(CRASH, "raised")
    assert relative(Verdict(Outcome.FAIL, said), crash, SameFailure.kind).outcome is Outcome.DIFFERENT
