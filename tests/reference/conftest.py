"""What tests of recorded values share."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.workers.pool import Pool


@pytest.fixture
def pool(tmp_path: Path):
    pytest.importorskip("onnxruntime")
    with Pool(tmp_path / "workers") as pool:
        yield pool
