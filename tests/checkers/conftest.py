from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from runner.checkers.checker import Tools
from runner.verdict import Candidate, Sample
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from strategies.search import Trial
from tests.checkers.models import tensors


@pytest.fixture(scope="session")
def guardian() -> Iterator[Guardian]:
    with Guardian() as guardian:
        yield guardian


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory, guardian: Guardian) -> Iterator[Pool]:
    with Pool(tmp_path_factory.mktemp("pool"), guardian) as pool:
        yield pool


@pytest.fixture
def tools(tmp_path: Path, pool: Pool, guardian: Guardian) -> Tools:
    (tmp_path / "run").mkdir()
    (tmp_path / "here").mkdir()
    return Tools(pool, guardian, tmp_path / "run", tmp_path / "here")


MakeCandidate = Callable[..., Candidate]


@pytest.fixture
def candidate(tools: Tools) -> MakeCandidate:
    counter = iter(range(1, 1000))

    def make(
        path: Path | None = None,
        *feeds: Mapping[str, np.ndarray],
        expected: Mapping[str, np.ndarray] | None = None,
        **more: object,
    ) -> Candidate:
        iteration = next(counter)
        folder = tools.run_folder / "checks" / f"{iteration:05d}"
        folder.mkdir(parents=True)
        samples = tuple(
            Sample(
                tensors(one, folder / "feeds" / str(number)), tensors(expected or {}, folder / "golden" / str(number))
            )
            for number, one in enumerate(feeds)
        )
        return Candidate(
            model=path,
            folder=folder,
            iteration=iteration,
            phase="bisect",
            label="0-3",
            trial=Trial.of([0, 1]),
            samples=samples,
            nodes=("a", "b"),
            **more,  # type: ignore[arg-type]
        )

    return make
