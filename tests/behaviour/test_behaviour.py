"""What a user sees of Winnow is what was written down: screen, exit code, result.json, order of checks, files.

``make behaviour`` writes it down anew and prints what is different. A difference is wanted and has a line in the
changelog, or it is a mistake.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviour.scene import GOLDEN, Scene

for _name in ("reductions", "other_questions", "endings"):
    importlib.import_module(f"tests.behaviour.{_name}")

EXPECTED = Path(__file__).parent / "expected"
LENGTH = 48
"""Characters of a folder's path, but for its eight random ones."""
RENEW = "WINNOW_RENEW_BEHAVIOUR"
"""Set where what is seen is written down, and not compared."""


@pytest.fixture
def here() -> Iterator[Path]:
    """A folder whose path is equally long on all machines: messages that quote it are cut at a length."""
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())).resolve()
    with tempfile.TemporaryDirectory(prefix="golden-".ljust(LENGTH - len(f"{root}/"), "-"), dir=root) as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_user_sees_the_same(name: str, here: Path, request: pytest.FixtureRequest) -> None:
    scene = Scene(here, lambda: str(request.getfixturevalue("rtx_python")))
    GOLDEN[name](scene)
    expected = EXPECTED / f"{name}.txt"
    if os.environ.get(RENEW):
        expected.write_text(scene.text)
    assert scene.text.splitlines() == expected.read_text().splitlines()


def test_nothing_is_kept_of_runs_that_are_made_no_more() -> None:
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted(GOLDEN)
