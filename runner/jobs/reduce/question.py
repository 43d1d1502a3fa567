"""What a reduction asks, in words: what is said where the whole model passes, and where nothing does."""

from __future__ import annotations

from runner.session.question import Question

FIT = (
    "Cuts have other inputs and outputs: let it feed what {inputs} holds and compare with what {references} holds "
    "(checker.command='python check.py {model} {inputs} {references}'; a function gets them as its arguments)"
)
"""What makes a check fit for cuts."""
NEEDS = (
    f"{FIT}. Where it has values of its own to compare with, give the good model that they come from "
    "(reference.model=), and it may be enough to keep the model's own inputs or outputs "
    "(strategy.reduce_inputs=false or strategy.reduce_outputs=false)"
)
"""What may be wrong with a check that passes no harmless model."""
OWN_SAMPLE = (
    "the check feeds an input of its own, and what is recorded is not right for it: give that input (inputs=files "
    "inputs.path=...). If it is that input, the reference is not right: give the good model (reference.model=) or the "
    "expected outputs (reference=files)"
)
"""What is said of a check that fits the whole model only, and of other values than those that were recorded."""
WHOLE_ONLY = (
    "Does it ever exit with 0? If it fails whatever it is given, mend it. If it fits the whole model only (it feeds "
    "values of its own, and compares with expected ones of its own), give the input that it feeds "
    "(inputs=files inputs.path=...). As it is, strategy=repeat asks of the whole model with it, strategy=passes where "
    "its command takes {switches}, and strategy=versions where it takes {python}"
)
"""What is asked first of a check that passes no harmless model, and what it can do as it is."""
_NOTHING, _SO = Question().nothing_fails
QUESTION = Question(
    whole_passes=("the whole model passes the check", "there is nothing to reduce"),
    nothing_fails=(_NOTHING, f"{_SO}\n{NEEDS}"),
)
"""What a reduction asks."""
