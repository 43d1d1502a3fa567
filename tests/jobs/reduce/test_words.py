"""Words of a check against experiments: which sets fail in the way of the whole model, whatever is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.harness import by_command, check_script, winnow
from tests.jobs.reduce.test_cause import pair
from tests.jobs.reduce.test_hard_failures import plain

COUNTING = """
import sys
import numpy as np, onnxruntime
with np.load(sys.argv[2]) as inputs, np.load(sys.argv[3]) as good:
    feeds, good = dict(inputs), dict(good)
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs() if one.name in good]
made = session.run(names, {one.name: feeds[one.name] for one in session.get_inputs()})
sys.exit(sum(not np.allclose(a, good[n], rtol=1e-2) for n, a in zip(names, made)))
"""
COUNTED = [
    ("Abs", "x", "a"),
    ("Mul", "a", "fault", 1.0),
    ("Neg", "fault", "one"),
    ("Sqrt", "fault", "root"),
    ("Tanh", "root", "two"),
]


def test_a_code_that_counts_outputs_does_not_need_all_of_them(tmp_path: Path) -> None:
    given = pair(tmp_path, COUNTED, ["one", "two"], {"fault": 1.2})
    (tmp_path / "check.py").write_text(COUNTING)
    argv = json.dumps([sys.executable, str(tmp_path / "check.py"), "{model}", "{inputs}", "{references}"])
    check = ("checker=command", f"checker.command={argv}", "checker.flaky=never", "strategy.look_inside=false")
    run = winnow(*given, *check, folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (0, ["fault"], "proven"), run.output
    assert "exit 2, now exit 1" in run.result["message"]
    assert not [said for said in run.result["warnings"] if "not followed" in said]
    again = winnow(*given, *check, f"resume={run.folder}", folder=tmp_path / "run")
    assert again.result["culprits"] == ["fault"] and again.result["checks"]["cause"] == 0


def test_another_failure_of_a_part_is_not_the_models(tmp_path: Path) -> None:
    """Without Sin the check says 3 of what is no part of the failure: with good values before it the model passes."""
    body = "sys.exit(1 if {'Cos_4', 'Sin_5'} <= nodes else 3 if 'Sin_5' in nodes else 0)"
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert run.result["culprits"] == ["Cos_4", "Sin_5"], run.output
    assert any("not followed: check: exit 3" in said for said in run.result["warnings"])


def test_words_count_where_the_user_wants_them_to(tmp_path: Path) -> None:
    given = pair(tmp_path, COUNTED, ["one", "two"], {"fault": 1.2})
    (tmp_path / "check.py").write_text(COUNTING)
    argv = json.dumps([sys.executable, str(tmp_path / "check.py"), "{model}", "{inputs}", "{references}"])
    check = ("checker=command", f"checker.command={argv}", "checker.flaky=never", "checker.same_failure=strict")
    run = winnow(*given, *check, "strategy.look_inside=false", folder=tmp_path / "run")
    assert set(run.result["culprits"]) > {"fault"}, run.output
