"""python -m benchmarks.budgets > benchmarks/results/budgets.md: which layers to keep within a budget of bytes?

On the networks of `benchmarks.quantized_layers`, whose quantizable layers have a budget of a tenth, a quarter and half
of their weights. By error, and by error for each byte, it is filled with what fits; of two sets that differ the better
one on the samples that are searched is taken, as ``strategy.budget`` does. All errors are those on fresh samples, in
units of the tolerance.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.quantized_layers import SPECS, Planted, UnfitError, made

BUDGETS = (0.1, 0.25, 0.5)


def rows(planted: Planted) -> Iterator[tuple[float, float, float, float]]:
    """Yield the budget, and what the sets by error, by error for each byte, and the better of both leave."""
    sizes = {one.name: 4 * int(np.prod(one.dims)) for one in planted.tool.parent.graph.initializer}
    nodes = {node.name: node for node in planted.tool.parent.graph.node}
    costs = {name: sum(sizes.get(read, 0) for read in nodes[name].input) for name in planted.tool.layers}

    def filled(budget: float, worth: Callable[[str], float]) -> list[str]:
        left, chosen = budget * sum(costs.values()), []
        for name in sorted(costs, key=worth, reverse=True):
            if costs[name] <= left:
                chosen.append(name)
                left -= costs[name]
        return chosen

    for budget in BUDGETS:
        first = filled(budget, lambda name: planted.alone[name])
        second = filled(budget, lambda name: planted.alone[name] / max(costs[name], 1))
        better = first if planted.error(first) <= planted.error(second) else second
        left = [planted.error(one, fresh=True) / planted.rtol for one in (first, second, better)]
        yield budget, left[0], left[1], left[2]


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    every: dict[str, list[tuple[float, float, float]]] = {"seen": [], "held": []}
    print("| network | half | budget | by error | by error for each byte | better of both |\n|---|---|---|---|---|---|")
    for spec in SPECS:
        with contextlib.suppress(UnfitError), contextlib.redirect_stdout(sys.stderr):
            found = list(rows(made(spec)))
        for budget, *left in found:
            every[spec.half].append((left[0], left[1], left[2]))
            print(f"| {spec.name} | {spec.half} | {budget:g} | {' | '.join(f'{one:.3f}' for one in left)} |")
    print("\n| half | budgets | each byte: better / worse | better of both: better / worse | mean of its errors |")
    print("|---|---|---|---|---|")
    for half, some in every.items():
        byte, both = ((sum(one[at] < one[0] for one in some), sum(one[at] > one[0] for one in some)) for at in (1, 2))
        mean = math.exp(sum(math.log(one[2] / one[0]) for one in some) / len(some))
        print(f"| {half} | {len(some)} | {byte[0]} / {byte[1]} | {both[0]} / {both[1]} | {mean:.3f} of by error |")


if __name__ == "__main__":
    main()
