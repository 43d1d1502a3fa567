"""Malformed model files: one clear line and the documented exit code each, and nothing read elsewhere.

All of them are run by ``python -m benchmarks.malformed``; here a few of every kind.
"""

from __future__ import annotations

import sys
from functools import cache

import pytest

from benchmarks.malformed import Row, Watched, judged, read, run, write
from benchmarks.malformed_models import OUTSIDE, malformed
from tests.matrix import sample

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is opened is seen by inotify")
everything = cache(malformed)
# those that end in another way than being refused when they are read
WHOLE = {
    "truncated": "conv 150",
    "external data": "a link out",
    "types": "conv: an input with a size of 1099511627776",
    "names": "conv: escape in a kind",
    "path": "a pipe",
}


def test_there_are_enough_of_them_and_always_the_same() -> None:
    assert len(everything()) >= 500
    names = [(one.kind, one.name) for one in everything()]
    assert names == [(one.kind, one.name) for one in malformed()]
    assert len({kind for kind, _ in names}) >= 12


def test_a_few_of_each_kind_are_read(tmp_path) -> None:
    watched = Watched(tmp_path / OUTSIDE)
    chosen = [one for at, one in enumerate(everything()) if at % 20 == 7 or one.kind == "external data"]
    rows = write(chosen, tmp_path)
    read(rows, tmp_path)
    assert [(row.file.kind, row.file.name, row.problems) for row in rows if row.problems] == []
    assert sum(row.refused is not None for row in rows) > len(rows) / 2
    assert watched.opened() == set()


@pytest.mark.variants
@pytest.mark.parametrize("kind", sample(WHOLE, 4))
def test_whole_runs(tmp_path, kind) -> None:
    watched = Watched(tmp_path / OUTSIDE)
    (row,) = write([one for one in everything() if (one.kind, one.name) == (kind, WHOLE[kind])], tmp_path)
    (tmp_path / "runs").mkdir()
    run(row, tmp_path)
    assert row.problems == []
    assert row.code == (0 if kind == "names" else 2)
    assert watched.opened() == set()


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("versions", "conv: opset 0", 0),
        pytest.param("attributes", "control: a Scan without num_scan_inputs", 0, marks=pytest.mark.slow),
        pytest.param("types", "conv: an input with a size of 0", 3, marks=pytest.mark.slow),
        pytest.param("names", "functions: local that is no text", 2, marks=pytest.mark.slow),
    ],
)
def test_what_is_read_and_cannot_be_run_is_no_internal_error(kind: str, name: str, code: int, tmp_path) -> None:
    (row,) = write([one for one in everything() if (one.kind, one.name) == (kind, name)], tmp_path)
    (tmp_path / "runs").mkdir()
    run(row, tmp_path)
    assert row.problems == [] and row.code == code


def test_the_watcher_and_the_judge_see_what_is_wrong(tmp_path) -> None:
    """The check itself can fail: a read of the secret, a traceback, a code that is not documented."""
    watched = Watched(tmp_path / OUTSIDE)
    (tmp_path / OUTSIDE / "secret.bin").read_bytes()
    assert watched.opened() == {"secret.bin"}
    row = Row(everything()[0], tmp_path / "m.onnx", code=1)
    found = judged(row, tmp_path, "", "Traceback (most recent call last):\n  boom")
    assert any("exit code 1" in one for one in found) and any("Traceback" in one for one in found)
    row.code = 2
    assert any("not one line" in one for one in judged(row, tmp_path, "", "usage: a\nb"))
