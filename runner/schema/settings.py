"""The decorator of every settings class: a frozen dataclass that OmegaConf accepts as a schema; limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Do nothing at run time: only type checkers read it."""
        return lambda cls: cls


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[_T]) -> type[_T]:
    """Make ``cls`` a frozen, keyword-only dataclass."""
    return dataclass(frozen=True, kw_only=True)(cls)


def limited(default: Any, *, least: float, most: float | None = None) -> Any:
    """Declare a setting whose number (unless it is null) is from ``least`` to ``most``; ``beyond_limits`` checks it."""
    return field(default=default, metadata={"least": least, "most": most})


def beyond_limits(section: Any, prefix: str = "") -> Iterator[str]:
    """Say of each number in ``section`` that its declaration does not allow which numbers it does."""
    for item in fields(section):
        value, key = getattr(section, item.name), prefix + item.name
        if is_dataclass(value):
            yield from beyond_limits(value, f"{key}.")
        elif "least" in item.metadata and value is not None:
            least, most = item.metadata["least"], item.metadata["most"]
            if not (value >= least and (most is None or value <= most)):  # a NaN is neither
                allowed = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
                yield f"{key}={value:g}: it must be {allowed}."
