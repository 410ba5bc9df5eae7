"""Sketch of a result: what the folds read of it, in its place where results are not kept, as in a history.

From it the folds decide what they decide from the result, under any rules, and nobody can read the result in it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .fields import Count

MAX_LINES = 256
"""Maximum number of lines of a sketch."""

LINE_BYTES = 4

Lines = Annotated[bytes, Meta(max_length=MAX_LINES * LINE_BYTES)]
"""Numbers of 32 bits, in the order of their bytes from low to high."""

Answer = Annotated[int, Meta(ge=0, lt=1 << 32)]


class ReportedFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Failure that a result reports.

    Attributes:
        type: class or category of the error.
        message: its text, of a long one beginning and end.
        http_status: status of the answer, 400 or more.
        code: error code, or exit code.
    """

    type: str = ""
    message: str = ""
    http_status: int | None = None
    code: str = ""


class ResultSketch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the folds read of a result.

    Attributes:
        digest: fingerprint of the result, 16 hexadecimal digits, equal for equal results; empty without a result.
        size: length of the result in bytes.
        failure: the failure that it reports, unless the event tells one.
        text: beginning and end of its text, if the call has failed and it reports no failure; of a success that in a
            few words says that something was not found, these words.
        lines: hashes of its lines, or those of the failure's message, without those that echo the request; of many a
            sample.
        answer: hash of these lines together, in any order; 0 without lines, and of a long result.
        says: what it says: `empty` without text, `echo` of the request alone, that there is `nothing`, one `word`, or
            an `error`, although the call succeeded.
    """

    digest: Annotated[str, Meta(pattern="^(?:[0-9a-f]{16})?$")] = ""
    size: Count = 0
    failure: ReportedFailure | None = None
    text: str = ""
    lines: Lines = b""
    answer: Answer = 0
    says: Literal["empty", "echo", "nothing", "word", "error"] | None = None
