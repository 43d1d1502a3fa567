"""Values from a function of the user's, which runs in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runner.errors import UsageError
from runner.model.values.recorded import TensorFile
from runner.samples.declared_inputs import Declared, listing
from runner.schema.inputs import PythonInputs
from runner.workers.pool import Pool

_EXAMPLE = "it returns (or yields) dictionaries, input name to numpy array, one for each sample"


def from_python(
    settings: PythonInputs, inputs: Mapping[str, Declared], pool: Pool, folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """What ``settings.function`` of ``settings.file`` returns.

    Raises UsageError if there is no such file or function, if it raises, dies or takes longer than ``timeout``,
    and for values that do not fit the model.
    """
    if not settings.file:
        raise UsageError(f"inputs.file is missing: inputs=python needs a Python file with a function; {_EXAMPLE}")
    file = Path(settings.file).expanduser().absolute()
    if not file.is_file():
        raise UsageError(f"inputs.file={settings.file}: no such file (seen from {Path.cwd()})")
    call = f"{file.name}:{settings.function}"
    out = folder / "values"
    out.mkdir(parents=True, exist_ok=True)
    structures = {name: one.structure for name, one in inputs.items() if one.structure is not None}
    arguments = {"file": str(file), "function": settings.function, "out": str(out), "structures": structures}
    reply = pool.call("user_inputs", arguments, timeout=settings.timeout, lease=pool.user_kind)
    if reply.failure:
        # the stage "setup": it could not even be called
        raised = "" if reply.failure.stage == "setup" else f"{call} raised {reply.failure.type}: "
        raise UsageError(f"inputs=python: {raised}{reply.failure.message}; {_EXAMPLE}")
    if reply.death or reply.value is None:
        raise UsageError(f"inputs=python: {call} ended with {reply.death}")
    result = tuple(
        _sample([TensorFile.from_json(tensor) for tensor in sample.values()], inputs, f"{call}, sample {number}")
        for number, sample in enumerate(reply.value["samples"])
    )
    if not result:
        raise UsageError(f"inputs=python: {call} gave no sample; {_EXAMPLE}")
    return result


def _sample(tensors: list[TensorFile], inputs: Mapping[str, Declared], where: str) -> dict[str, TensorFile]:
    held = {tensor.name: tensor for tensor in tensors}
    if missing := [name for name in inputs if name not in held]:
        raise UsageError(f"{where}: no value for input {', '.join(map(repr, missing))}; {listing(inputs)}")
    for name, one in inputs.items():
        shapes = (held[name].shape,) if one.structure is None else held[name].elements
        dtype = held[name].dtype if one.structure is None else one.inside.dtype
        for shape in shapes:
            if why := one.inside.mismatch(dtype, shape):
                raise UsageError(f"{where}: {name!r} {why}")
    return {name: held[name] for name in inputs}
