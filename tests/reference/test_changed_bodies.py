"""What differs in the body of a converted node is told, where it is alike in all else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runner.reference.wiring import changed_bodies
from tests.reference.test_changed_weights import B, part, side

FIRST = "s = Mul (v, k)  t = Add (u, l)  d = Sub (s, t)  on = Identity (c)"


def loop(text: str = FIRST, gives: str = "s, t", k: float = 1.5) -> tuple[str, np.ndarray]:
    ends = "(int64 i, bool c, float[6] v, float[6] u)", ", ".join(f"float[6] {name}" for name in gives.split(", "))
    return f"y, z = Loop (n, , x, x) <body = body {ends[0]} => (bool on, {ends[1]}) {{ {text} }}>", np.float32(k)


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (loop(), ()),
        (loop(FIRST.replace("v, k", "k, v")), ()),
        (loop(k=1.25), ("k in y/Loop.body is 1.25; k of the original is 1.5",)),
        (loop(FIRST.replace("v, k", "v, l")), ("y/Loop.body/s reads l; the original reads k there",)),
        (loop(FIRST.replace("u, l", "v, l")), ("y/Loop.body/t reads v; the original reads u there",)),
        (loop(FIRST.replace("Sub", "Div")), ("y/Loop.body/d is Div, where the original has Sub",)),
        (loop(gives="t, s"), ("y/Loop.body hands out its values in another order",)),
        (loop("w = Neg (v) " + FIRST), ()),
    ],
)
def test_a_body_is_compared_node_by_node(mine: tuple[str, np.ndarray], said: tuple[str, ...], tmp_path: Path) -> None:
    sides = []
    for name, (text, k) in {"mine": mine, "theirs": loop()}.items():
        (folder := tmp_path / name).mkdir()
        sides.append(side(part(text, k=k, l=np.float32(0.5), n=np.int64(3), b=B), folder))
    assert changed_bodies(sides[0], sides[1], {"y/Loop": "y/Loop"}, {"y/Loop"}) == said
