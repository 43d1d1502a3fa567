"""Which files beside a model hold its weights: a guess before it is loaded, whatever lies there."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path


def weights_beside(path: Path) -> list[Path]:
    """Return the files beside the model at ``path`` that hold its weights; none where it cannot be read."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return []
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            # the key by which a tensor names its file: few models need onnx, and every start would wait for it
            if content.find(b"location") < 0:
                return []
        from runner.model.files.external_data import locations  # noqa: PLC0415
        from runner.model.files.parse_without_weights import parse  # noqa: PLC0415

        names = locations(parse(path))
    except Exception:  # noqa: BLE001 - whatever lies there: loading says what is wrong with it
        return []
    plain = [name for name in sorted(names) if "\0" not in name and ".." not in Path(name).parts]
    places = [path.parent / name for name in plain if not Path(name).is_absolute()]
    # of a link to a model the weights may lie beside its target
    return [place if place.exists() else path.resolve().parent / place.relative_to(path.parent) for place in places]
