"""What a program can ask: a function for each strategy, all with the same arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.api.given import Check, Model
from runner.api.options import Options
from runner.api.result import Result
from runner.api.run import run

if TYPE_CHECKING:
    from typing_extensions import Unpack


def reduce(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the smallest part of ``model`` that still fails (`strategy=reduce`, or one of its searches).

    ``check``: a function ``check(model, inputs, expected)``, as of checker=python, or a command; None: ``checker``
    says what judges, and without it the target must load, run, stay finite and agree with the reference.
    """
    return run("reduce", model, check, options)


def precision(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the fewest nodes of ``model`` that must stay in high precision, and the mixed model."""
    return run("precision", model, check, options)


def triage(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return what fails, why, since when, and what helps: one question after another."""
    return run("triage", model, check, options)


def layerwise(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return how far each tensor of ``model`` is from the reference's, and which goes wrong first."""
    return run("layerwise", model, check, options)


def passes(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the optimizations of the target that the failure needs."""
    return run("passes", model, check, options)


def versions(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the releases of a package in which the failure is there, and the nearest good ones."""
    return run("versions", model, check, options)


def workaround(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return what heals ``model`` without another release, and what it costs."""
    return run("workaround", model, check, options)


def extract(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return named nodes of ``model`` as a model of their own (``strategy={"nodes": [..]}``), and its verdict."""
    return run("extract", model, check, options)


def repeat(model: Model = None, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return how often the same check passes (``strategy={"until": 20}``)."""
    return run("repeat", model, check, options)


def inspect(model: Model, **options: Unpack[Options]) -> Result:
    """Return what ``model`` is made of; nothing is checked."""
    return run("inspect", model, None, options)
