"""The section of a report that says which optimizations a failure needs, and how they are turned off."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from runner.report.markup import block, bullets, code, section

_OF_A_SESSION = frozenset({"disabled_optimizers", "session_options", "config_entries"})
OFF_ALONE: Mapping[str, str] = {
    "fail": "the whole model still fails; another one does its part",
    "different": "the whole model fails otherwise",
    "unresolved": "not known",
    "pass": "not sure",  # a flaky check has passed too few times
}


def passes_section(passes: Mapping[str, Any] | None, minimality: str | None) -> str:
    """Return the section; "" where no passes were searched. ``minimality``: whether each is shown to be needed."""
    if not passes:
        return ""
    needed = ", ".join(map(code, passes["needed"]))
    heals = [f"Off, with all others on, the whole model passes: {', '.join(map(code, one))}" for one in passes["heals"]]
    healed = {one[0] for one in passes["heals"] if len(one) == 1}
    others = [
        f"{code(name)} alone off, with all others on: {OFF_ALONE.get(outcome, outcome)}"
        for name, outcome in passes["alone_off"].items()
        if name not in healed
    ]
    shown = "Needed for the failure" if minimality == "1-minimal" else "Enough for the failure; not all may be needed"
    parts = [bullets([f"{shown}, with the rest of {passes['asked']} off: {needed}", *heals, *others])]
    if session := session_code(passes["settings"]):
        parts += ["The first of these, off in a program of your own:", block(session, "python")]
    if passes["overrides"]:
        parts += ["The same for Winnow:", block(shlex.join(passes["overrides"]), "sh")]
    return section("What has to be on", "\n\n".join(parts))


def session_code(settings: Mapping[str, Any]) -> str:
    """Return Python that makes a session of ONNX Runtime with these settings; "" where they are another runtime's."""
    if not settings or not {*settings} <= _OF_A_SESSION:
        return ""
    lines = ["options = onnxruntime.SessionOptions()"]
    lines += [f"options.{name} = {value}" for name, value in settings.get("session_options", {}).items()]
    entries = settings.get("config_entries", {}).items()
    lines += [f"options.add_session_config_entry({name!r}, {value!r})" for name, value in entries]
    disabled = settings.get("disabled_optimizers")
    more = f", disabled_optimizers={disabled!r}" if disabled else ""
    return "\n".join([*lines, f"session = onnxruntime.InferenceSession(path, options{more})"])
