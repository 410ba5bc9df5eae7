"""Base struct of all rules, and their number types."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Threshold = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Wait = Annotated[float, Meta(ge=0, le=31_536_000)]
Ratio = Annotated[float, Meta(gt=0, le=1)]
Score = Annotated[float, Meta(ge=0, le=1)]


class RulesBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base struct of all rules: frozen, keyword-only, unknown names are rejected."""
