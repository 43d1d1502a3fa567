from __future__ import annotations

import pytest

from runner.checkers.exit_and_output import ExitRules
from runner.exit_codes import UsageError
from runner.schema.checker import CommandChecker
from runner.verdict import Raised, Signature, Verdict
from runner.workers.commands import CommandEnd
from strategies.search import Outcome

PASS, FAIL, DIFFERENT, UNRESOLVED = Outcome.PASS, Outcome.FAIL, Outcome.DIFFERENT, Outcome.UNRESOLVED

AT = 'Traceback (most recent call last):\n  File "/u/check.py", line 7, in f\n    g()\n'
MISFIT = AT + "ValueError: Required inputs (['x']) are missing from input feed (['img']).\n"
RAISED = AT + "RuntimeError: it is off\n"
IMPORT = AT + "ModuleNotFoundError: No module named 'helpers'\n"


def judged(code: int | None, output: str = "", death: str | None = None, **settings: object) -> Verdict:
    rules = ExitRules(CommandChecker(command="c", **settings))  # type: ignore[arg-type]
    return rules.judge(CommandEnd(code, death, None, 1.0, 1.0), output, "c {model}")


def judge(*given, **settings: object):
    judgment = judged(*given, **settings)
    return judgment.outcome, judgment.signature.kind if judgment.signature else None


@pytest.mark.parametrize(
    ("code", "output", "settings", "outcome", "kind"),
    [
        # no lists: 0 passes
        (0, "", {}, PASS, None),
        (1, "", {}, FAIL, "exit 1"),
        (3, "", {}, FAIL, "exit 3"),
        # pass_codes (the peer's --ignore-fail-code) come before everything but the codes that say something else
        (3, "boom", {"pass_codes": [3]}, PASS, None),
        (3, "boom", {"pass_codes": [3], "fail_regex": ["boom"]}, PASS, None),
        (1, "", {"pass_codes": [3]}, FAIL, "exit 1"),
        (0, "boom", {"pass_codes": [3], "fail_regex": ["boom"]}, FAIL, "regex"),
        # fail_codes: only these fail
        (1, "", {"fail_codes": [1, 2]}, FAIL, "listed exit"),
        (2, "", {"fail_codes": [1, 2]}, FAIL, "listed exit"),
        (3, "", {"fail_codes": [1, 2]}, PASS, None),
        (0, "", {"fail_codes": [0]}, FAIL, "listed exit"),
        (1, "", {"fail_codes": [0]}, PASS, None),
        # fail_codes and regexes: both
        (1, "all fine", {"fail_codes": [1], "fail_regex": ["bo+m"]}, PASS, None),
        (1, "a\nbooom b", {"fail_codes": [1], "fail_regex": ["bo+m"]}, FAIL, "listed exit"),
        (2, "boom", {"fail_codes": [1], "fail_regex": ["boom"]}, PASS, None),
        (0, "boom", {"fail_codes": [0], "fail_regex": ["x", "boom"]}, FAIL, "listed exit"),
        # only regexes: whatever the code
        (0, "boom", {"fail_regex": ["boom"]}, FAIL, "regex"),
        (1, "fine", {"fail_regex": ["boom"]}, PASS, None),
        (-6, "boom", {"fail_regex": ["boom"]}, FAIL, "regex"),
        # ours
        (4, "", {"different_codes": [4]}, DIFFERENT, "exit 4"),
        (2, "boom", {"invalid_codes": [2], "fail_regex": ["boom"]}, UNRESOLVED, None),
        # a shell's words for a death
        (139, "", {"fail_codes": [1]}, FAIL, "death MEMORY"),
        (134, "", {}, FAIL, "death MEMORY"),
        (136, "", {"fail_regex": ["boom"]}, FAIL, "death FPE"),
        (139, "", {"fail_codes": [139]}, FAIL, "listed exit"),
        (139, "", {"pass_codes": [139]}, PASS, None),
        # never started, in a shell's words
        (127, "sh: chek: not found", {}, UNRESOLVED, None),
        (127, "sh: chek: not found", {"fail_regex": ["not found"]}, UNRESOLVED, None),
        (127, "", {"fail_codes": [127]}, FAIL, "listed exit"),
        (126, "", {"fail_codes": [1]}, UNRESOLVED, None),
        # refused by an interpreter or an option parser
        (2, "python: can't open file '/x/chek.py': [Errno 2] No such", {"fail_codes": [1]}, UNRESOLVED, None),
        (2, "usage: c\nc: error: unrecognized arguments: --modle", {}, UNRESOLVED, None),
        (1, "/usr/bin/python3: No module named polygraphyy", {}, UNRESOLVED, None),
        (1, "ModuleNotFoundError: No module named 'x'", {}, FAIL, "exit 1"),
        (2, "error: unrecognized arguments: --x", {"fail_codes": [2]}, FAIL, "listed exit"),
        (1, '  File "c.py", line 3\nSyntaxError: invalid syntax', {}, UNRESOLVED, None),
        (5, "no tests ran in 0.01s", {}, UNRESOLVED, None),
        # an exception: the signature has it, unless a regular expression is found outside of its own text
        (1, MISFIT, {}, FAIL, "exit 1"),
        (1, MISFIT, {"fail_codes": [1]}, FAIL, "listed exit"),
        (1, MISFIT, {"fail_regex": ["Error"]}, FAIL, "regex"),
        # one that is about feeds has judged nothing, whatever its code
        (1, MISFIT, {"pass_codes": [1]}, UNRESOLVED, None),
        (1, MISFIT, {"fail_codes": [2]}, UNRESOLVED, None),
        (1, MISFIT, {"fail_regex": ["boom"]}, UNRESOLVED, None),
        (0, MISFIT, {}, UNRESOLVED, None),
        (0, MISFIT + "tried the other way\n" * 10, {}, PASS, None),
        (1, RAISED, {"fail_regex": ["boom"]}, PASS, None),
        (1, IMPORT, {}, UNRESOLVED, None),
        (1, IMPORT, {"fail_codes": [1]}, UNRESOLVED, None),
        (1, IMPORT + "without it\n" * 10, {}, FAIL, "exit 1"),
        (1, "boom\n" + IMPORT, {"fail_regex": ["boom"]}, FAIL, "regex"),
        (3, IMPORT, {"invalid_codes": [3]}, UNRESOLVED, None),
        # a signal that the user lists is what the user says
        (-11, "", {"fail_codes": [-11]}, FAIL, "listed exit"),
        (-11, "", {"invalid_codes": [-11]}, UNRESOLVED, None),
    ],
)
def test_the_rules_in_order(code, output, settings, outcome, kind) -> None:
    assert judge(code, output, **settings) == (outcome, kind)


@pytest.mark.parametrize("settings", [{}, {"fail_codes": [1]}, {"pass_codes": [0]}, {"fail_regex": ["boom"]}])
@pytest.mark.parametrize(
    ("code", "death"), [(-11, "death MEMORY"), (-8, "death FPE"), (None, "timeout"), (None, "memory")]
)
def test_a_death_is_neither_a_pass_nor_the_listed_failure(code, death, settings) -> None:
    assert judge(code, "", death, **settings) == (FAIL, death)


def test_the_signature_holds_the_normalized_last_line() -> None:
    judgment = judged(1, "a\nbad value 3 in 'conv_7'\n")
    assert judgment.signature == Signature("check", "exit 1", "bad value # in _")
    assert judgment.reason == "bad value 3 in 'conv_7'"
    assert judged(3, invalid_codes=[3]).reason == "exit 3 is one of invalid_codes"


@pytest.mark.parametrize(
    "settings",
    [
        {"pass_codes": [0], "fail_codes": [1]},
        {"fail_codes": [1, 2], "invalid_codes": [2]},
        {"different_codes": [3], "invalid_codes": [3]},
        {"fail_regex": ["("]},
    ],
)
def test_contradictions_are_refused(settings) -> None:
    with pytest.raises(UsageError, match="checker"):
        ExitRules(CommandChecker(command="c", **settings))


@pytest.mark.parametrize(
    ("output", "settings", "raised"),
    [
        (MISFIT, {}, Raised(("ValueError at check.py:7",), "feeds: a missing input")),
        (RAISED, {"fail_codes": [1]}, Raised(("RuntimeError at check.py:7",), "check")),
        (MISFIT, {"fail_regex": ["Required"]}, Raised(("ValueError at check.py:7",), "feeds: a missing input")),
        # what the user looks for is there beside it, or is the exception itself
        ("boom\n" + MISFIT, {"fail_regex": ["boom"]}, None),
        (RAISED, {"fail_regex": ["it is off"]}, None),
        ("max diff 0.5", {}, None),
        # words of the check's own: where the code is listed these are no exception
        ("y: (shapes (6,), (1, 6) mismatch)", {}, Raised((), "feeds: the shape of the values to compare with")),
        ("y: (shapes (6,), (1, 6) mismatch)", {"fail_codes": [1]}, None),
        ("KeyError: 'y'", {"fail_codes": [1]}, None),
        ("Required inputs (['x']) are missing", {"fail_codes": [1]}, Raised((), "feeds: a missing input")),
    ],
)
def test_the_exception_that_ended_it_is_in_the_signature(output, settings, raised) -> None:
    judgment = judged(1, output, **settings)
    assert judgment.outcome is FAIL and judgment.signature
    assert judgment.signature.raised == raised
