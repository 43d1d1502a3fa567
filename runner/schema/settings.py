"""The decorator of every settings class: a frozen dataclass that OmegaConf accepts as a schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

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
