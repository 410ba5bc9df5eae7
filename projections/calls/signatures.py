"""Signatures of failures: the line that tells what failed, without what varies. They group failures across agents.

Clients and shells put lines above an error that say nothing of it (`Exit code 1`, `Wall time: 2 s`, a traceback's
frames). Below such a line the first one that names an error is taken, or else the first. See docs/history.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .masks import WITHHELD

SIGNATURE_CHARS = 160  # Maximum length of a signature in characters
READ_CHARS = 8192  # Number of characters of a message that are read

_LINE_CHARS = 600
_QUOTED = re.compile(r"\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,63}://\S+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@%+~-]+)+/?|\b[\w.@-]{1,255}(?:/[\w.@%+~-]+)+/?")
_NUMBER = re.compile(r"\b[0-9a-f]{12,}\b|(?<![A-Za-z\d])(?:0x[0-9a-fA-F]+|\d+(?:[.,:-]\d+)*)")

_ESCAPES = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
# Characters of boxes and headings around a message
_FRAME = " \t│║┃|╭╮╰╯┌┐└┘─━═*#>"

# Lines that tell nothing of what failed
_HEADING = re.compile(
    r"""(?:error:\ ?)?(?:the\ |shell\ )?(?:process\ |command\ )?(?:failed\ with\ |exited\ with\ |returned\ )?
        (?:an?\ )?(?:non-zero\ )?exit(?:ed)?[\ -]?(?:code|status)?[:\ =]{0,3}-?\d{1,10}\.?
      | process\ exited\ with\ (?:code|status)\ -?\d{1,10}\.?
      | (?:chunk\ id|wall\ time|original\ token\ count|duration|elapsed):.{0,80}
      | (?:error|output|stdout|stderr|result|logs?|details):? | traceback\ \(most\ recent\ call\ last\): | \$\ .*""",
    re.IGNORECASE | re.VERBOSE,
)

_TRACEBACK = "traceback (most recent call last):"

_ERROR = re.compile(
    r"""error|exception|fatal|panic|fail|cannot|can['’]t|could\ not|couldn['’]t|unable|denied|refused|not\ found
      | no\ such|undefined|unexpected|unknown|unrecogni[sz]ed|unsupported|invalid|illegal|missing|timed?[\ -]?out
      | must\ |conflict|forbidden|unauthori[sz]ed|not\ allowed|no\ matches|already\ exists|does\ not|doesn['’]t
      | not\ a\ |[\w)\]]:\d{1,7}:\d{1,7}:?\ """,
    re.IGNORECASE | re.VERBOSE,
)
# Expression for lines that name an error word but no error: counts of 0, warnings, summaries
_NO_ERROR = re.compile(
    r"""\b(?:0|no)\ (?:errors?|fail\w{0,8}|problems?) | \bwarn(?:ing)?\b | \b(?:pass|ok)\b
      | (?:task|build|tests?)\ failed\b | ^found\ \d{1,9}\ \w""",
    re.IGNORECASE | re.VERBOSE,
)


def signature(kind: str, code: str, message: str, status: str = "") -> str:
    """Signature of a failure: its telling line without names, numbers, paths and quotations.

    `Timeout after 30s on /home/ann/x.py` and `Timeout after 45s on /srv/y.py` have one signature.
    """
    text = telling_line(message)
    if "://" in text:
        text = _URL.sub("<url>", text)
    if '"' in text or "'" in text or "`" in text:
        text = _QUOTED.sub("<text>", text)
    if "/" in text:
        text = _PATH.sub("<path>", text)
    if not WITHHELD.fullmatch(text):
        text = _NUMBER.sub("<n>", text)
    head = " ".join(filter(None, dict.fromkeys((kind, code)))) or ("" if text else status)
    return f"{head}: {text}".strip(": ")[:SIGNATURE_CHARS]


def telling_line(message: str) -> str:
    """Line of a message that tells what failed.

    The first line, unless it is a heading: then the first of the others that names an error, or else the first that is
    no heading. A message of headings alone has its first line.
    """
    lines = _lines(message)
    first = next(lines, "")
    if not _HEADING.fullmatch(first):
        return first
    below = [line for line in lines if not _HEADING.fullmatch(line)]
    named = (line for line in below if _ERROR.search(line) and not _NO_ERROR.search(line))
    return next(named, below[0] if below else first)


def _lines(message: str) -> Iterator[str]:
    """Lines with a text, each without its frame; those of a traceback without its indented frames."""
    in_traceback = False
    for line in message[:READ_CHARS].splitlines():
        if in_traceback and line[:1].isspace():
            continue
        text = _ESCAPES.sub("", line[:_LINE_CHARS]).strip(_FRAME)
        in_traceback = (in_traceback and not text) or text.lower() == _TRACEBACK
        if text:
            yield text
