"""Infinities that are meant, under a check that fails for any: a mask's -Inf is no output of a candidate then.

Whether a check does so is seen by a control that hands out nothing but such a tensor, with its good value.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from runner.jobs.reduce.subgraph import Subgraph
from runner.model.graph.control_model import Form
from runner.model.graph.cut import CutError
from runner.model.graph.graph_index import Graph
from runner.model.graph.remove_unused import with_outputs
from runner.reference.nonfinite import Taint, taint_of_all
from runner.session.judge import Judge
from runner.session.question import NOTHING
from runner.text import listed
from strategies.outcome import Outcome
from strategies.search_space import Closure
from strategies.trial import Trial

log = logging.getLogger(__name__)


def hidden(judge: Judge) -> Judge:
    """Return a judge whose candidates do not hand out what is meant to be infinite, if the check fails for that."""
    subject, failure = judge.subject, judge.studied.signature
    if not isinstance(subject, Subgraph) or not subject.fed or failure is None or not failure.about_values:
        return judge
    if subject.closure is Closure.PLACE:  # it hands out no inner tensor
        return judge
    meant = meant_infinities(subject)
    for name in sorted(meant, key=lambda one: subject.graph.producers[one])[:1]:
        try:
            made = subject.cut(Trial.of([subject.graph.producers[name]]))
        except CutError:
            return judge
        graph = Graph.of(with_outputs(made, {name}).model)
        label = f"an Identity that hands out {name!r} with its recorded value"
        control = replace(subject, graph=graph, origin=label, control=Form(outputs=True, good=True))
        if judge.stage(label, control).sure(NOTHING, "control", label).outcome is Outcome.FAIL:
            log.info(
                "no output of a candidate: %s, infinite on purpose, for which alone the check fails", listed(meant)
            )
            taint = None if subject.recorded.healthy(subject.graph.outputs) else Taint(frozenset(), meant)
            return judge.stage("without what is meant to be infinite", replace(subject, unshown=meant, taint=taint))
    return judge


def meant_infinities(subject: Subgraph) -> frozenset[str]:
    """Return the inner tensors that hold an Inf, no NaN, when the reference runs, though none reaches an output."""
    samples, graph = subject.recorded.values, subject.graph
    infinite = {name for one in samples for name, held in one.items() if not held.finite and not held.nan}
    harmless = infinite if subject.recorded.healthy(graph.outputs) else taint_of_all(graph, samples).harmless
    return frozenset(harmless & infinite & graph.producers.keys() - graph.output_set)
