"""Whether two models are the same but for names."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from runner.jobs.precision.from_float import equal_but_for_names
from tests.jobs.models import parsed

TEXT = "g (float[2] x) => (float[2] y) { t = Add(x, W) u = Relu(x) y = Mul(t, u) }"


def made(text: str = TEXT, weight: float = 1.0) -> ModelProto:
    name = "V" if "V" in text else "W"
    return parsed(text, **{name: np.full(2, weight, np.float32)})


@pytest.mark.parametrize(
    ("text", "weight", "equal"),
    [
        (TEXT, 1.0, True),
        (TEXT.replace("W", "V"), 1.0, True),
        ("g (float[2] x) => (float[2] y) { u = Relu(x) t = Add(x, W) y = Mul(t, u) }", 1.0, True),
        (TEXT, 2.0, False),
        (TEXT.replace("Relu", "Elu"), 1.0, False),
        (TEXT.replace("Relu(x)", "Relu(t)"), 1.0, False),
    ],
)
def test_what_weights_are_called_and_where_nodes_stand_does_not_matter(text: str, weight: float, equal: bool) -> None:
    assert equal_but_for_names(made(), made(text, weight)) is equal


def test_of_weights_outside_of_a_file_it_is_not_known() -> None:
    model = made()
    model.graph.initializer[0].external_data.add(key="location", value="weights")
    assert not equal_but_for_names(model, model)
