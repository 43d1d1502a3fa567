"""Settings of the `inputs` group: what the model is fed."""

from typing import Any, ClassVar

from runner.schema.settings import PathUse, setting, settings


@settings
class InputsSettings:
    """What every choice of inputs has.

    ``implementation``: called with these settings, what the model declares of its inputs, the workers, and a folder for
    tensor files, it returns the samples.
    """

    implementation: ClassVar[str] = ""

    name: str = "random"
    shapes: dict[str, list[int]] = setting({})
    timeout: float = setting(600.0, least=0.001)


@settings
class RandomInputs(InputsSettings):
    """Seeded random values, the same for the same name and seed."""

    implementation = "runner.samples.random_values:from_random"

    name: str = "random"
    seed: int = 1
    samples: int = setting(1, least=1)
    ranges: dict[str, list[Any]] = setting({})


@settings
class FilesInputs(InputsSettings):
    """Values from files."""

    implementation = "runner.samples.files:from_files"

    name: str = "files"
    path: Any = setting(None, path=PathUse.READ)
    split: int | None = setting(None, least=1)


@settings
class PythonInputs(InputsSettings):
    """Values from a function of the user's: `samples() -> iterable of {name: array}`."""

    implementation = "runner.samples.files:from_python"

    name: str = "python"
    file: str | None = setting(None, path=PathUse.READ)
    function: str = "samples"
