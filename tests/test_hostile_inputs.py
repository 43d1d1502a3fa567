"""Hostile input files: one clear line each, or values that fit; nothing is waited for and nothing read elsewhere.

All of them are read by ``python -m benchmarks.hostile_inputs``; here every third.
"""

from __future__ import annotations

import sys
import warnings

import pytest

from benchmarks.hostile_inputs import everything, forged, judged, read, run
from benchmarks.malformed import Row, Watched
from benchmarks.malformed_models import OUTSIDE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is opened is seen by inotify")


@pytest.mark.slow
def test_there_are_enough_of_them_and_always_the_same() -> None:
    names = [(one.kind, one.name, one.target) for one in everything(0)]
    assert len(names) >= 300
    assert names == [(one.kind, one.name, one.target) for one in everything(0)]


@pytest.mark.variants
@pytest.mark.parametrize("part", range(2))
def test_each_is_refused_in_one_line_or_read(tmp_path, part) -> None:
    watched = Watched(tmp_path / OUTSIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of a process with threads; a child does nothing but read
        chosen = everything(7)[part::6]
        rows = [read(file, tmp_path / f"{number:04d}") for number, file in enumerate(chosen)]
    assert [(row.file.kind, row.file.name, row.problems) for row in rows if row.problems] == []
    assert {row.said.partition(" ")[0] for row in rows} == {"usage:", "read"}
    assert watched.opened() == set()


@pytest.mark.slow
def test_a_whole_run(tmp_path) -> None:
    (file,) = [one for one in forged() if (one.name, one.target) == ("a pipe: input_0.pb", "open")]
    (tmp_path / OUTSIDE).mkdir()
    row = read(file, tmp_path / "0")
    run(row, tmp_path)
    assert (row.code, row.problems) == (2, [])


def test_the_judge_sees_what_is_wrong(tmp_path) -> None:
    """A reading that ends in another way, and an error that names no file."""
    for answer in ("raised TypeError: an integer is required", "usage: it is broken", "usage: a\nb", ""):
        assert judged(Row(forged()[0], tmp_path / "given.npy", said=answer)).problems
