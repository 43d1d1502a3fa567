"""What tests of recorded values share."""

from __future__ import annotations

import pytest

from runner.workers.pool import Pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory):
    pytest.importorskip("onnxruntime")
    with Pool(tmp_path_factory.mktemp("workers")) as pool:
        yield pool
