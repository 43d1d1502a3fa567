"""The phases of a run: as checks are marked with them, and in words for people."""

from __future__ import annotations

REPEATS, RE_CHECK, CAUSE, SHRINK = "doubt", "re-check", "cause", "shrink"
ALONE, HELD_OUT = "stability", "held out"
START = ("pre-flight", "control")
NO_SEARCH = (*START, REPEATS, RE_CHECK, CAUSE, SHRINK, ALONE, HELD_OUT, "first look inside")
WORDS = {
    "pre-flight": "pre-flight: what does the whole do",
    "control": "control: can the check tell good from bad",
    "first look inside": "looking inside the whole model",
    "one at a time": "proving it 1-minimal, one element at a time",
    "several at once": "proving it minimal, several elements at once",
    REPEATS: "repeating verdicts on which the answer rests",
    ALONE: "testing what was left out",
    HELD_OUT: "checking on inputs that the search has not seen",
    SHRINK: "making the answer simpler",
    RE_CHECK: "re-check of what is handed over",
    "search": "trying one after the other",
    "repeat": "repeating",
    CAUSE: "cause: does the failure arise inside the answer",
}


def is_start(phase: str) -> bool:
    """Whether a check says what the whole does, or whether the check can judge."""
    return phase in START


def is_search(phase: str) -> bool:
    """Whether a check looks for an answer."""
    return phase not in NO_SEARCH


def in_words(phase: str) -> str:
    """Return what a person is told of a phase."""
    return WORDS.get(phase) or f"searching: {phase}"
