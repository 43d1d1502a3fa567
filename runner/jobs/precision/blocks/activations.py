"""Softmax and Gelu, written out."""

from __future__ import annotations

import math

from runner.jobs.precision.blocks.tree_patterns import (
    Pattern,
    anything,
    either,
    guarded,
    number,
    op,
    some_input,
    tensor,
)

# the largest value may be taken away first
_SHIFTED = either(op("Sub", tensor("values"), op("ReduceMax", tensor("values"))), anything)
_EXPONENTIAL = op("Exp", _SHIFTED)
# some may be masked
_EXPONENTIALS = tensor("top", either(some_input("Mul Where", _EXPONENTIAL), _EXPONENTIAL))


def _total(pattern: Pattern) -> Pattern:
    """Match a sum, to which a small number may be added, or that one limits."""
    return guarded(op("ReduceSum", pattern), 1)


SOFTMAX = either(
    op("Div", _EXPONENTIALS, _total(tensor("top"))),
    op("Mul", _EXPONENTIALS, op("Reciprocal", _total(tensor("top")))),
)

_LARGEST = tensor("largest", op("ReduceMax", tensor("left")))
LOG_SOFTMAX = either(
    op("Sub", tensor("left", _SHIFTED), op("ReduceLogSumExp", tensor("left"))),
    op("Sub", tensor("left", _SHIFTED), op("Log", _total(op("Exp", tensor("left"))))),
    # the largest value and the logarithm of the sum are taken away in one
    op("Sub", tensor("left"), op("Add", _LARGEST, op("Log", _total(op("Exp", op("Sub", tensor("left"), _LARGEST)))))),
)

_ERF = op("Erf", either(op("Div", tensor("x"), number(math.sqrt(2))), op("Mul", tensor("x"), number(0.5**0.5))))
_CUBIC = op("Mul", op("Pow", tensor("x"), number(3.0)), number(0.044715))
_TANH = op("Tanh", op("Mul", op("Add", tensor("x"), _CUBIC), number(math.sqrt(2 / math.pi))))
_SHARE = op("Add", either(_ERF, _TANH), number(1.0))
GELU = either(
    op("Mul", _SHARE, op("Mul", tensor("x"), number(0.5))),
    op("Mul", op("Mul", _SHARE, tensor("x")), number(0.5)),
    op("Mul", op("Mul", _SHARE, number(0.5)), tensor("x")),
)
"""x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)) in whatever order."""
