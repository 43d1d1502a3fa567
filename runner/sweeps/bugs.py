"""Runs `strategy=bugs`: failures that still stand, grouped by what heals them, in bugs.md."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from runner.exit_codes import BUDGET_REACHED, Status
from runner.files import write_text
from runner.jobs.variants.passes import changes, session_switches
from runner.jobs.variants.passes import overrides as told
from runner.model.files.parse_without_weights import parse
from runner.report.diagnosis_sections import BUGS_NAME, bugs_page
from runner.report.page.graph_columns import operator_of
from runner.report.result_parts import Evidence, KnownBug, KnownFailure, Releases
from runner.report.summary import Summary
from runner.run_folder import is_sweep
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.root import Settings
from runner.schema.strategy import BugsSettings, chosen
from runner.sweeps.recheck import (
    FIXED,
    NOT_JUDGED,
    STILL,
    KeptResult,
    Outlook,
    Rechecker,
    folders,
    kept_run,
    relative_to,
)
from runner.text import counted, listed

# The form of a model: operators, attributes, types and edges, without names, shapes and weights.

_INERT = frozenset({"Constant", "Identity"})
# a rank or a layout decides these; what else is one number or a word is a choice between computations
_POSITIONS = frozenset({"axis"})


def operators_of(model: ModelProto) -> tuple[str, ...]:
    """Return the operators of a model, sorted, each once; without those that compute nothing."""
    named = {operator_of(node) for node in model.graph.node if node.op_type not in _INERT}
    return tuple(sorted(named)) or tuple(sorted({operator_of(node) for node in model.graph.node}))


def form_of(model: ModelProto) -> str:
    """Return a digest that two models share where they have the same form, wherever their inputs come from.

    Each node is described with all that leads to it, as by Merkle (1979); their order in the file does not count.
    """
    return _form(model.graph, {})


def _form(graph: GraphProto, outer: dict[str, str]) -> str:
    known = {**outer, **{value.name: f"fed {value.type.tensor_type.elem_type}" for value in graph.input}}
    known |= {tensor.name: f"weight {tensor.data_type}" for tensor in graph.initializer}
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    found = []
    for node in graph.node:
        parts = [operator_of(node), *sorted(_attributes(node, known))]
        parts += [known.get(name, "outer") if name else "none" for name in node.input]
        digest = _digest(parts)
        found.append(digest)
        known |= {name: f"{digest} {at} {types.get(name, 0)}" for at, name in enumerate(node.output)}
    return _digest(sorted(found))


def _attributes(node: NodeProto, known: dict[str, str]) -> Iterator[str]:
    for one in node.attribute:
        if one.type == AttributeProto.GRAPH:
            yield f"{one.name} {_form(one.g, known)}"
        elif one.type == AttributeProto.STRING:
            yield f"{one.name} {one.s!r}"
        elif one.type == AttributeProto.INT and one.name not in _POSITIONS:
            yield f"{one.name} {one.i}"
        elif one.type == AttributeProto.TENSOR:
            yield f"{one.name} {TensorProto.DataType.Name(one.t.data_type) if one.t.data_type else ''}"
        else:
            yield one.name


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# A failure as it is grouped: what its kept result says of it, and what is known to heal it.

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
    def signature(self) -> KnownFailure:
        """How it fails."""
        return self.kept.result.failure

    def alike(self, other: Failure) -> bool:
        """Whether both look the same: the form of their models, and how they fail."""
        mine, theirs = (replace(one.signature, detail="") for one in (self, other))
        return self.form == other.form and mine == theirs


def failure_of(kept: KeptResult) -> Failure:
    """Return a kept result, whose model has been checked, as a failure."""
    model = parse(kept.model)
    remedies = {one.overrides: one for one in (*_passes(kept.result), *_workarounds(kept.result))}
    needed = frozenset(kept.result.passes.needed if kept.result.passes else ())
    return Failure(kept, operators_of(model), form_of(model), len(model.graph.node), tuple(remedies.values()), needed)


def _passes(result: Summary) -> Iterator[ShownRemedy]:
    """Yield the sets of passes that heal it, once they are off."""
    passes = result.passes
    if not passes or not passes.heals:
        return
    first, *others = passes.heals
    given = _harmless(passes.overrides)
    if given:
        yield ShownRemedy(_off(first), given)
    off = passes.settings.get("disabled_optimizers") if len(passes.settings) == 1 else None
    if not given or not isinstance(off, list):
        return
    anyway = [str(one) for one in off if one not in first]  # what the user had turned off already
    for names in others:
        if all(map(_OPTIMIZER.fullmatch, (*anyway, *names))):
            yield ShownRemedy(_off(names), (f"target.disabled_optimizers=[{','.join((*anyway, *names))}]",))


def _workarounds(result: Summary) -> Iterator[ShownRemedy]:
    """Yield the workarounds that mean something for another model too. A release does not: it heals many things."""
    for one in result.workarounds:
        if one.passes and one.kind == "pass" and (overrides := _harmless(one.overrides)):
            yield ShownRemedy(_named(one.what), overrides)


def _named(what: str) -> str:
    """Return a workaround by name, as the same set of passes is called: ``without A, B`` is ``A and B off``."""
    names = what.removeprefix("without ")
    return what if names == what else _off(names.split(", "))


def _off(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} off"


def _harmless(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return overrides that switch parts of the target off, or none: the result may be a stranger's.

    Other settings name files that are read, loaded or written; so do some of a session's and of a provider's options.
    """
    return overrides if all(map(_switches_off, overrides)) else ()


def _switches_off(override: str) -> bool:
    key, _, value = override.partition("=")
    plain = OnnxRuntimeBackend()
    known = {word for one in session_switches(plain, ()) for word in told(changes(plain, [one]))}
    entries = value[1:-1].split(", ") if value.startswith("{") and value.endswith("}") else []
    return bool(_NAMES.fullmatch(override)) or (bool(entries) and all(f"{key}={{{one}}}" in known for one in entries))


# Groups failures into bugs: each is compared with the bugs that are known, and joins the first that it is one of.
#
# Two failures are one bug where all that heals one heals the other: one pass alone may have a part in several bugs.
# That is known where the same was found for both, or both need the same passes and one remedy is in both (another
# release may pass with fewer of them off); else it is asked, of their own small models. Where nothing is known to heal
# either, they are one if they look the same.

CHECKED, LIKENESS, FIRST = "checked", "by likeness", "the first of its kind"

Heals = Callable[[ShownRemedy, Failure], "bool | None"]
"""Whether a remedy of one failure heals another one; a check. None: it could not be judged."""


@dataclass(frozen=True)
class Member:
    """A failure of a bug, and why it is one of it."""

    failure: Failure
    how: str
    said: str = ""


@dataclass
class Bug:
    """Failures of one kind; the first is the smallest."""

    members: list[Member] = field(default_factory=list)

    @property
    def smallest(self) -> Failure:
        """The failure that stands for all of them."""
        return self.members[0].failure

    @property
    def remedies(self) -> list[ShownRemedy]:
        """What heals any of them."""
        every = [remedy for member in self.members for remedy in member.failure.remedies]
        return list({one.overrides: one for one in every}.values())

    def shared(self, failure: Failure) -> list[ShownRemedy]:
        """Return what was shown to heal the failure, and one of these."""
        known = {one.overrides for one in self.remedies}
        return [one for one in failure.remedies if one.overrides in known]

    def worth_asking(self, failure: Failure) -> bool:
        """Whether the failure may be of this bug: a remedy is in both, or an operator."""
        return bool(self.shared(failure)) or not {*failure.operators}.isdisjoint(self.smallest.operators)


def grouped(failures: Sequence[Failure], heals: Heals) -> list[Bug]:
    """Return the bugs, the one with most failures first."""
    bugs: list[Bug] = []
    for failure in sorted(failures, key=lambda one: (one.size, str(one.kept.folder))):
        known = sorted((bug for bug in bugs if bug.worth_asking(failure)), key=lambda bug: _rank(failure, bug))
        for bug in known:
            if member := _one_of(failure, bug, heals):
                bug.members.append(member)
                break
        else:
            bugs.append(Bug([Member(failure, FIRST)]))
    return sorted(bugs, key=lambda bug: -len(bug.members))


def _rank(failure: Failure, bug: Bug) -> tuple[bool, bool, int]:
    """The likeliest bug comes first: it spares questions."""
    other = bug.smallest
    return not bug.shared(failure), failure.form != other.form, -len({*failure.operators} & {*other.operators})


def _one_of(failure: Failure, bug: Bug, heals: Heals) -> Member | None:
    """Return the failure as a member of a bug, or None."""
    if not failure.remedies and not bug.remedies:
        return Member(failure, LIKENESS, "no setting is known to heal it") if failure.alike(bug.smallest) else None
    known = bug.shared(failure)
    if known and failure.needed == bug.smallest.needed and failure.needed:
        passes = " and ".join(sorted(failure.needed))
        return Member(failure, CHECKED, f"it and the smallest need {passes}, and pass with {known[0].name}")
    shared, found = {one.overrides for one in known}, [one.name for one in known]
    questions = [*((one, failure) for one in bug.remedies), *((one, bug.smallest) for one in failure.remedies)]
    for remedy, asked in questions:
        healed = None if remedy.overrides in shared else heals(remedy, asked)
        if healed is False:
            return None
        found += [remedy.name] if healed else []
    return Member(failure, CHECKED, f"it and another pass with {listed(found)}") if found else None


log = logging.getLogger(__name__)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Group failures and write bugs.md. Raises UsageError for names that lead to none."""
    found = folders(chosen(settings.strategy, BugsSettings).results)

    def ask(rechecker: Rechecker) -> Summary:
        failures, apart = _standing(rechecker, found)

        def heals(remedy: ShownRemedy, failure: Failure) -> bool | None:
            outlook = rechecker.outlook(failure.kept, remedy.overrides)
            log.info("%s with %s: %s", failure.kept.folder, remedy.name, outlook.outcome)
            return None if outlook.outcome == NOT_JUDGED else outlook.outcome == FIXED

        groups = grouped(failures, heals)
        bugs, warnings = _seen_from(folder, groups, apart)
        write_text(folder / BUGS_NAME, bugs_page(bugs, warnings))
        if is_sweep(folder.parent):  # a sweep has them beside its table
            write_text(folder.parent / BUGS_NAME, bugs_page(*_seen_from(folder.parent, groups, apart)))
        words = Counter(one.outcome for one in apart.values())
        left = f"; apart from these: {', '.join(f'{number} {word}' for word, number in words.items())}" if apart else ""
        stopped = f"; {BUDGET_REACHED} before all was asked" if rechecker.checks.spent else ""
        said = f"{counted(len(bugs), 'bug')} in {counted(len(failures), 'failure')}{left}{stopped}: see {BUGS_NAME}"
        unknown = NOT_JUDGED in words or rechecker.checks.spent
        status = Status.found if bugs else Status.could_not_judge if unknown else Status.nothing_to_find
        return Summary(status, status.exit_code, settings.strategy.name, said, bugs=bugs, warnings=warnings)

    planned = f"{counted(len(found), 'failure')} would be grouped; nothing was checked, as asked"
    return kept_run(settings, folder, command, found, ask, planned)


def _standing(rechecker: Rechecker, found: Sequence[Path]) -> tuple[list[Failure], dict[Path, Outlook]]:
    """Return the failures that are there when they are checked again, and how it stands with the others."""
    failures, apart = [], dict[Path, Outlook]()
    for one in found:
        kept, outlook = rechecker.look(one)
        if kept and outlook.outcome == STILL:
            failures.append(failure_of(kept))
        else:
            log.warning("%s: %s: %s", one, outlook.outcome, outlook.said)
            apart[one] = outlook
    return failures, apart


def _seen_from(
    place: Path, groups: Sequence[Bug], apart: Mapping[Path, Outlook]
) -> tuple[tuple[KnownBug, ...], tuple[str, ...]]:
    """Return what is told of bugs, and of those that are in none, with paths as they are seen from ``place``."""
    told = ((relative_to(one, place), how) for one, how in apart.items())
    others = tuple(f"{where}: {how.outcome}: {how.said}".removesuffix(": ") for where, how in told)
    return tuple(described(bug, place) for bug in groups), others


def described(bug: Bug, folder: Path) -> KnownBug:
    """Return what is told of a bug; paths as they are seen from ``folder``."""
    smallest = bug.smallest
    members = [one.failure for one in bug.members]
    remedies = list(dict.fromkeys(remedy.name for one in members for remedy in one.remedies))
    kind = smallest.signature.kind or "failure"
    asked = (one.kept.result.releases for one in members)
    return KnownBug(
        name=f"{'+'.join(smallest.operators)}: {kind}" + (f" (it passes with {remedies[0]})" if remedies else ""),
        failures=tuple(relative_to(one.kept.folder, folder) for one in members),
        count=len(members),
        smallest=relative_to(smallest.kept.model, folder),
        culprit_operators=smallest.operators,
        passes=tuple(remedies),
        signature=smallest.signature,
        releases=next((_releases(one) for one in asked if one), None),
        workaround=smallest.remedies[0].overrides if smallest.remedies else (),
        hosts=tuple(dict.fromkeys(Path(one.kept.result.input_model or one.kept.model).name for one in members)),
        evidence=tuple(
            Evidence(relative_to(one.failure.kept.folder, folder), one.how, one.said) for one in bug.members
        ),
    )


def _releases(found: Releases) -> str:
    """Return the releases of a failure in a line."""
    broken = ", ".join(one.version for one in found.asked if one.outcome == "broken")
    good = " and ".join(found.good)
    return f"{found.package} is broken in {broken}" + (f"; good: {good}" if good else "")
