"""The section of a report that says what keeps a failure away, how that was shown, and what it costs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.report.markup import block, section, table, text
from runner.text import one_line


def workarounds_section(workarounds: Sequence[Mapping[str, Any]]) -> str:
    """Return the section; "" where nothing was tried."""
    if not workarounds:
        return ""
    head = ("kind", "what", "passes", "inputs", "time", "why not")
    parts = [table(head, [_row(one) for one in workarounds])]
    for one in workarounds:
        if not one["passes"]:
            continue
        parts.append(text(f"{one['kind']}, {one['what']}:"))
        if one["code"]:
            parts.append(block(one["code"], "sh" if one["kind"] == "release" else "python"))
        if one["overrides"]:
            parts += ["For Winnow:", block(shlex.join(one["overrides"]), "sh")]
    return section("Workarounds", "\n\n".join(parts))


def shown(one: Mapping[str, Any]) -> str:
    """Return how a workaround was shown to help, where, and what it costs, as far as a clock can tell."""
    samples, ratio = one["samples"], (one.get("latency") or {}).get("ratio")
    where = f" {one['where']}" if one.get("where") else ""
    slower = "as fast as without" if ratio and 0.9 < ratio < 1.1 else f"{ratio or 0:.1f} times as long as without"
    cost = f", {slower}" if ratio else ""
    return f"{samples['passed']} of {samples['of']} {samples['kind']} inputs pass{where}{cost}"


def left_out(workarounds: Iterable[Mapping[str, Any]]) -> str:
    """Return why some could not be tried, the first reason and whether there are more; "" where all were."""
    reasons = list(dict.fromkeys(one_line(one.get("why_not")) for one in workarounds if not was_tried(one)))
    return f"{reasons[0]}{' (others for other reasons: REPORT.md)' * (len(reasons) > 1)}" if reasons else ""


def was_tried(one: Mapping[str, Any]) -> bool:
    """Whether a workaround could be tried; a result of an earlier version does not say, and counts as tried."""
    return one.get("tried") is not False


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    samples, latency = one["samples"], one["latency"]
    where = f" {one['where']}" if one.get("where") else ""
    inputs = f"{samples['passed']} of {samples['of']} {samples['kind']}{where}" if one["passes"] else ""
    answer = "yes" if one["passes"] else "no" if was_tried(one) else "could not be tried"
    return (one["kind"], one["what"], answer, inputs, _time(latency), one["why_not"])


def _time(latency: Mapping[str, Any] | None) -> str:
    if not latency:
        return ""
    if latency["before_ms"] is None:
        return f"{latency['after_ms']:g} ms (it does not run without)"
    return f"{latency['before_ms']:g} ms, with it {latency['after_ms']:g} ms (times {latency['ratio']:g})"
