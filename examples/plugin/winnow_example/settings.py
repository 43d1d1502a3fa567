"""The settings of the choices. Every run of Winnow imports this module, so it imports nothing heavy."""

from __future__ import annotations

from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.inputs import InputsSettings
from runner.schema.settings import settings
from runner.schema.strategy import StrategySettings


@settings
class HasOperator(CheckerSettings):
    """FAIL if the candidate holds an operator."""

    implementation = "winnow_example.checker:HasOperatorCheck"
    runs_own_code = True

    name: str = "has_operator"
    # the operator's type
    operator: str = "MatMul"


@settings
class Digits(BackendSettings):
    """The reference evaluator, whose outputs keep so many significant digits."""

    implementation = "winnow_example.backend:DigitsBackend"

    name: str = "digits"
    digits: int = 3


@settings
class Constant(InputsSettings):
    """The same value everywhere."""

    implementation = "winnow_example.inputs:constant"

    name: str = "constant"
    value: float = 1.0


@settings
class EachSample(StrategySettings):
    """Checks the model on each sample alone: which of them fail?"""

    implementation = "winnow_example.subject:run"

    name: str = "each_sample"
    search: str = "each"
    subject: str = "sample"
