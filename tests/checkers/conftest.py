from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from runner.checkers.checker import Tools
from runner.verdict import Candidate, Sample, Verdict
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from strategies.search import Trial
from tests.checkers.models import model, tensors


@pytest.fixture(scope="session")
def guardian() -> Iterator[Guardian]:
    with Guardian() as guardian:
        yield guardian


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory, guardian: Guardian) -> Iterator[Pool]:
    with Pool(tmp_path_factory.mktemp("pool"), guardian) as pool:
        yield pool


@dataclass(frozen=True)
class Here(Tools):
    """The tools of checkers where a user stands, and candidates."""

    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @cached_property
    def relu(self) -> Path:
        return model([helper.make_node("Relu", ["x"], ["y"])], self.cwd.parent / "relu.onnx")

    def script(self, text: str) -> str:
        (self.cwd / "check.py").write_text(text)
        return "check.py"

    def said(self, verdict: Verdict) -> str:
        """What a check has printed."""
        assert verdict.log
        return (self.run_folder / verdict.log).read_text().strip()

    def candidate(
        self,
        path: Path | None = None,
        *feeds: Mapping[str, np.ndarray],
        expected: Mapping[str, np.ndarray] | None = None,
        **more: object,
    ) -> Candidate:
        iteration = next(self.numbers)
        folder = self.run_folder / "checks" / f"{iteration:05d}"
        folder.mkdir(parents=True)
        samples = tuple(
            Sample(
                tensors(one, folder / "feeds" / str(number)), tensors(expected or {}, folder / "golden" / str(number))
            )
            for number, one in enumerate(feeds)
        )
        known = {"phase": "bisect", "label": "0-3", "trial": Trial.of([0, 1]), "nodes": ("a", "b"), **more}
        return Candidate(model=path, folder=folder, iteration=iteration, samples=samples, **known)  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path, pool: Pool, guardian: Guardian) -> Here:
    for name in ("run", "here"):
        (tmp_path / name).mkdir()
    return Here(pool, guardian, tmp_path / "run", tmp_path / "here")
