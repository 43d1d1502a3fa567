"""The benchmark of faults of quantization, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime.quantization")
from benchmarks.quantized_faults import FAULTS, RUNTIME, SPECS, Row, ask, made

ASKED = [next(spec for spec in SPECS if spec.fault == fault and not spec.held) for fault in (*FAULTS, RUNTIME)]


@pytest.mark.slow
@pytest.mark.parametrize("spec", ASKED, ids=lambda spec: spec.name)
def test_the_fault_is_found_and_proven(tmp_path: Path, spec) -> None:
    row = Row(faulty := made(spec), ask(faulty, tmp_path, []))
    assert row.what == "right, proven", row.cells()


def test_what_is_planted_is_said() -> None:
    faulty = made(next(spec for spec in SPECS if spec.fault == "weight scale" and not spec.held))
    weight = next(name for name in faulty.core if name.endswith("DequantizeLinear"))
    assert faulty.right({weight}) and faulty.right({weight, "another"})
    assert not faulty.right({weight, "another", "and another"}) and not faulty.right({"another"})
    assert faulty.healthy <= 0.5 and faulty.error >= 4
