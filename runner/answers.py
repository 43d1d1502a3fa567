"""Answers: from the end of a session to what its reports say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.report.bundle import Answer as Handed
from runner.report.summary import Summary
from runner.session import Ending
from runner.subjects.subgraph import Subgraph
from runner.subjects.trimming import cutting


def answered(summary: Summary, ending: Ending, subject: Subgraph, folder: Path) -> Summary:
    """Return the summary with what was found."""
    if not ending.standing:
        return summary
    standing = ending.standing
    names = standing.judge.subject.names(standing.trial)
    nested = tuple(name for name in names if any(name.startswith(f"{path}/") for path in standing.origin))
    main = subject.names(ending.main) if ending.main else names
    return replace(
        summary,
        nodes_after=standing.size,
        culprits=tuple(
            name
            for name in main
            if name in names or standing.owner_kept or any(path.startswith(f"{name}.") for path in standing.origin)
        ),
        nested=nested,
        model="reduced.onnx" if (folder / "reduced.onnx").exists() else None,
        min_good="min_good.onnx" if ending.min_good else None,
    )


def files_of(ending: Ending) -> Handed | None:
    """Return what the bundle shows of an answer."""
    if not ending.standing:
        return None
    subject = cutting(ending.standing.judge.subject)
    cut = subject.cut(ending.standing.trial)
    return Handed(cut.model, subject.samples(cut))


def several(first: Ending, others: Sequence[Summary]) -> str:
    """Say how a search for all answers went."""
    found = 1 + sum(summary.status == "found" for summary in others)
    last = others[-1]
    end = "" if last.status == "found" else f"; the last try ended otherwise: {last.message}"
    return f"{first.message}; {found} answers in all, the others are in answers/{end}"
