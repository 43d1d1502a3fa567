"""A failure as it is grouped: what its kept result says of it, and what is known to heal it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from runner.errors import UsageError
from runner.jobs.variants.switches import session_switches
from runner.model.files.parse_without_weights import parse
from runner.schema.backend import OnnxRuntimeBackend
from runner.sweeps.bugs.likeness import form_of, operators_of
from runner.sweeps.recheck.kept_result import KeptResult

_OPTIMIZER = re.compile(r"\w{1,100}", re.ASCII)
#: settings of a target whose values are names, of optimizers, of flags, of a level
_NAMES = re.compile(
    r"target\.(?:disabled_optimizers|flags|tactic_sources)=\[(?:\w{1,100}(?:, ?\w{1,100})*)?\]"
    r"|target\.optimization=\w{1,100}",
    re.ASCII,
)


@dataclass(frozen=True)
class ShownRemedy:
    """What was shown to heal a failure, and can be tried on another. ``overrides``: for its replay."""

    name: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """``size``: nodes of its model. ``form``: of its model, see `likeness`. ``needed``: the passes that it needs."""

    kept: KeptResult
    operators: tuple[str, ...]
    form: str
    size: int
    remedies: tuple[ShownRemedy, ...]
    needed: frozenset[str] = frozenset()

    @property
    def signature(self) -> Mapping[str, Any]:
        """How it fails."""
        found: Mapping[str, Any] = self.kept.result["signature"]
        return found

    @property
    def host(self) -> str:
        """The model that it was found in."""
        return str(self.kept.result.get("input_model") or self.kept.model)

    def alike(self, other: Failure) -> bool:
        """Whether both look the same: the form of their models, and how they fail."""
        told = [[one.signature.get(key) for key in ("stage", "kind", "raised")] for one in (self, other)]
        return self.form == other.form and told[0] == told[1]


def failure_of(kept: KeptResult) -> Failure:
    """Return a kept result as a failure. Raises UsageError for a model that cannot be read."""
    try:
        model = parse(kept.model)
    except (DecodeError, OSError, ValueError) as error:
        raise UsageError(f"{kept.model} cannot be read ({error})") from None
    remedies = {one.overrides: one for one in (*_passes(kept.result), *_workarounds(kept.result))}
    passes = kept.result.get("passes")
    named = passes.get("needed") if isinstance(passes, dict) else None
    needed = frozenset(map(str, named if isinstance(named, list) else ()))
    return Failure(kept, operators_of(model), form_of(model), len(model.graph.node), tuple(remedies.values()), needed)


def _passes(result: Mapping[str, Any]) -> Iterator[ShownRemedy]:
    """Yield the sets of passes that heal it, once they are off."""
    passes = result.get("passes")
    heals = passes.get("heals") if isinstance(passes, dict) else None
    sets = [list(map(str, one)) for one in heals if isinstance(one, list)] if isinstance(heals, list) else []
    if not isinstance(passes, dict) or not sets:
        return
    first, *others = sets
    given = _harmless(passes.get("overrides"))
    if given:
        yield ShownRemedy(_off(first), given)
    settings = passes.get("settings")
    off = settings.get("disabled_optimizers") if isinstance(settings, dict) and len(settings) == 1 else None
    if not given or not isinstance(off, list):
        return
    anyway = [str(one) for one in off if one not in first]  # what the user had turned off already
    for names in others:
        if all(map(_OPTIMIZER.fullmatch, (*anyway, *names))):
            yield ShownRemedy(_off(names), (f"target.disabled_optimizers=[{','.join((*anyway, *names))}]",))


def _workarounds(result: Mapping[str, Any]) -> Iterator[ShownRemedy]:
    """Yield the workarounds that mean something for another model too. A release does not: it heals many things."""
    found = result.get("workarounds")
    for one in found if isinstance(found, list) else ():
        of_all = isinstance(one, dict) and one.get("passes") is True and one.get("kind") == "pass"
        if of_all and (overrides := _harmless(one.get("overrides"))):
            yield ShownRemedy(_named(str(one.get("what", ""))), overrides)


def _named(what: str) -> str:
    """Return a workaround by name, as the same set of passes is called: ``without A, B`` is ``A and B off``."""
    names = what.removeprefix("without ")
    return what if names == what else _off(names.split(", "))


def _off(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} off"


def _harmless(overrides: object) -> tuple[str, ...]:
    """Return overrides that switch parts of the target off, or none: the result may be a stranger's.

    Other settings name files that are read, loaded or written; so do some of a session's and of a provider's options.
    """
    words = [str(one) for one in overrides] if isinstance(overrides, list) else []
    return tuple(words) if all(map(_switches_off, words)) else ()


def _switches_off(override: str) -> bool:
    key, _, value = override.partition("=")
    known = {f"target.{one.key}={one.entry}: {one.off}" for one in session_switches(OnnxRuntimeBackend(), ())}
    entries = value[1:-1].split(", ") if value.startswith("{") and value.endswith("}") else []
    return bool(_NAMES.fullmatch(override)) or (bool(entries) and all(f"{key}={one}" in known for one in entries))
