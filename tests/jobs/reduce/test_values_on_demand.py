"""A run that keeps no recorded values asks the same questions, on the same values, as one that keeps them all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.harness import by_command, check_script, winnow
from tests.jobs.models import saved

pytestmark = pytest.mark.slow

SIDE = 160  # a value takes more than what is packed with others
CHECK = """
import glob, hashlib, zipfile
held = []
for number in (0, 1):
    for path in sorted(glob.glob(sys.argv[2] + f"/test_data_set_{number}/*.pb")):
        held.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
print(" ".join(names), " ".join(held))
sys.exit(1 if {"loop", "late"} <= {*names} else 0)
"""


def model(folder: Path) -> Path:
    square = f"float[{SIDE},{SIDE}]"
    text = f"""g ({square} x) => ({square} y) <int64 count = {{3}}> {{
        [sin] s0 = Sin(x) [matmul] s1 = MatMul(s0, m)
        [loop] l = Loop(count, , s0) <body = body (int64 i, bool go, {square} v) => (bool on, {square} w) {{
            on = Identity(go) [inner] t = Tanh(v) [outer_value] w = Add(t, s1) }}>
        [mul] p = Mul(l, s1) [late] c = Cos(p) [softmax] y = Softmax(c) }}"""
    drawn = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
    return saved(folder / "model.onnx", text, m=drawn)


def test_every_check_gets_the_same_values(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    check, path = check_script(tmp_path, CHECK), model(tmp_path)
    told = {}
    for record in ("all", "lazy"):
        more = (
            "inputs.samples=2",
            f"cut.record={record}",
            "cut.disk=0",
            "strategy=reduce_bisect",
            "strategy.inside=true",
        )
        run = winnow(f"model={path}", *by_command(check, "{data}"), *more, folder=tmp_path / record)
        assert run.code == 0, run.output
        answer = {key: run.result[key] for key in ("culprits", "checks", "cause", "nodes", "nested", "outcomes")}
        said = [log.read_text() for log in sorted(run.folder.glob("checks/*/*.log"))]
        left = sorted(path.relative_to(run.folder) for path in run.folder.rglob("*.pb"))
        told[record] = (answer, said, left, [(run.folder / name).read_bytes() for name in left])
        kept = any("not all recorded values are kept" in line for line in run.result["warnings"])
        assert kept is (record == "lazy")
    assert told["all"][0]["culprits"] and len(told["all"][1]) > 5
    assert told["all"] == told["lazy"]


HELD = """
from pathlib import Path
for run in Path(sys.argv[1]).parents:
    if (run / ".winnow.json").exists():
        size = sum(file.stat().st_size for file in (run / "values").rglob("piece*/*.pb"))
        with Path(__file__).with_name(run.name + ".sizes").open("a") as log:
            print(size, file=log)
sys.exit(1 if {"loop", "late"} <= {*names} else 0)
"""


def test_values_that_no_check_is_fed_with_are_not_written(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    check, path = check_script(tmp_path, HELD), model(tmp_path)
    value = SIDE * SIDE * 4
    answers, written = {}, {}
    for name, words, more in (
        ("held", (), ()),
        ("all", (), ("cut.record=all",)),
        ("fed", ("{inputs}",), ()),
    ):
        run = winnow(f"model={path}", *by_command(check, *words), *more, folder=tmp_path / name)
        assert run.code == 0, run.output
        answers[name] = {key: run.result[key] for key in ("culprits", "checks", "cause", "nodes", "outcomes")}
        data = sorted((run.folder / "test_data_set_0").iterdir())
        answers[name]["files"] = [run.folder.joinpath("reduced.onnx").read_bytes(), *(one.read_bytes() for one in data)]
        assert not any("not all recorded values are kept" in line for line in run.result["warnings"])
        sizes = [*map(int, check.with_name(f"{name}.sizes").read_text().split())]
        written[name] = sizes[3]  # of the search; the first check begins before anything is recorded
    assert written["held"] < 2 * value  # the model's output
    assert min(written[name] for name in ("all", "fed")) > 5 * value
    assert answers["held"] == answers["all"]
    checks, outcomes = answers["held"]["checks"], answers["held"]["outcomes"]
    more = {  # whether it reads what it asks for takes two checks
        "checks": {**checks, "trust": checks["trust"] + 2, "control": checks["control"] + 2},
        "outcomes": {**outcomes, "pass": outcomes["pass"] + 2},
    }
    assert answers["held"] | more == answers["fed"]
