"""Sound checks that look as if they were not: they show exceptions that they catch, and write files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import by_command, check_script, winnow
from tests.runner.test_hard_failures import plain

CATCH = """
import traceback
try:
    if %s: raise RuntimeError('cannot simplify it')
except RuntimeError:
    traceback.print_exc()
"""
WHOLE, CUT = "len(nodes) == 10", "len(nodes) < 10"
JUDGE = "if 'Cos_4' in nodes: print('max diff 0.5'); sys.exit(1)\n"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(CATCH % WHOLE + JUDGE, id="caught on the whole model only"),
        pytest.param(CATCH % CUT + JUDGE, id="caught on cuts only"),
        pytest.param(CATCH % CUT + "assert 'Cos_4' not in nodes\n", id="caught on cuts, then asserted"),
        pytest.param(f"if {CUT}: print('WARNING: KeyError: no y in it')\n" + JUDGE, id="a warning like an error"),
    ],
)
def test_an_exception_that_the_check_catches_does_not_count(tmp_path: Path, body: str) -> None:
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["Cos_4"]), run.output
    assert not run.result["unresolved"]


def test_a_log_of_what_passed_may_grow(tmp_path: Path) -> None:
    log = tmp_path / "passed.csv"
    log.write_text("model\n")
    body = JUDGE + "open(sys.argv[2], 'a').write(sys.argv[1] + '\\n')\n"
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body), str(log)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["Cos_4"]), run.output
    assert "writes this file" in run.output


def test_two_assertions_of_one_bug(tmp_path: Path) -> None:
    """Cut off from the Sin behind it, Cos is caught by an earlier assertion: no answer, unless both are one."""
    body = "assert not ('Cos_4' in nodes and 'Sin_5' not in nodes)\nassert 'Cos_4' not in nodes\n"
    given = (*plain(tmp_path), *by_command(check_script(tmp_path, body)))
    run = winnow(*given, folder=tmp_path / "run")
    assert run.code == 3, run.output
    assert "checker.same_failure=any" in run.result["message"]
    any_of_both = winnow(*given, "checker.same_failure=any", folder=tmp_path / "any")
    assert (any_of_both.code, any_of_both.result["culprits"]) == (0, ["Cos_4"]), any_of_both.output
