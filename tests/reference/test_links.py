"""Models whose files are links: what came in is studied, and the file itself can be checked as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.harness import winnow
from tests.model.test_ingest import hub


def test_a_model_in_the_cache_of_a_hub(tmp_path: Path) -> None:
    # nothing fails here, so the file is checked as it is before that is said
    words = f"model={hub(tmp_path / 'cache', 'snapshots/rev/onnx')}", "checker=compare", "target=onnx_reference"
    run = winnow(*words, folder=tmp_path / "run")
    assert run.code == 4, run.output


def test_a_link_to_a_model_whose_weights_lie_beside_its_target(tmp_path: Path) -> None:
    cached, real, link = hub(tmp_path / "cache"), tmp_path / "real", tmp_path / "links" / "m.onnx"
    real.mkdir()
    link.parent.mkdir()
    for name in ("model.onnx", "model.onnx_data"):
        shutil.copyfile(cached.with_name(name), real / name)
    link.symlink_to(real / "model.onnx")
    run = winnow(f"model={link}", "checker=compare", folder=tmp_path / "run")
    assert run.code == 4, run.output
