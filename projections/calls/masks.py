"""Masks of what moves in a text although nothing has changed (docs/detection.md#what-counts-as-moving).

Two results are the same if they differ only in times, durations, attempts, generated ids and temporary paths. Any other
number is news: errors that are left, a price, a line count. Failures lose more: positions in files, hashes, and what
they repeat of their call's request.

A text is searched in a plain form of the same length, in which every digit is 0 and letters are lower-case. So each
expression begins with a literal, which the engine finds much faster than a set of characters, and one search tells
that nothing moves, as in most texts. Expressions are linear: what follows the literal is bounded or possessive, and is
tried where a word or number begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_RESULT_BYTES = 1024
"""Longer results are represented by their beginning and end, together at most this long, and the length between."""

MAX_FAILURE_CHARS = 2048
"""Longer failures are represented by their beginning and end, together this long, and the number of lines between."""

MAX_REQUEST_CHARS = 300
"""Number of characters of a request that are looked for in its failure."""

MARK = b"*"
"""Stands for what moves. One byte, so that no text grows, and one that continues no number and no word."""

ECHO = "<arg>"
"""Stands for what a failure repeats of its call's request."""

_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PLAIN = bytes.maketrans(b"123456789\"'=" + _UPPER, b"000000000  :" + _UPPER.lower())
_WIDTH = 9
"""Width of names in look-behinds, which need one width for all alternatives."""
_ROOM = 8
"""Half of the bytes that the length of what is left out may take."""

_BEFORE = b" " * (_WIDTH + 4)
"""Put before a plain form, so that look-behinds reach a boundary at its beginning, too."""

_SEPARATED = (r"[\ :\#\t]0", r"(?::\ |\ :|\ \#|[.]\ )0", r"\ :\ 0", r"\\\ :0", r"\\\ :\ 0", r"\\\ :\\\ 0")
"""What stands between a name and the first digit of its value: as `name 0`, `name=0`, `"name": 0`, `\\"name\\": 0`."""


def _after(names: Iterable[str], separators: Iterable[str] = _SEPARATED) -> str:
    """Expression that holds after one of `names` and a separator; names of up to five characters are whole words.

    In a name `.` is any character. The last three characters are looked at first: most words end otherwise.
    """
    ends = sorted({name[-_WIDTH:] for name in names})
    whole = "|".join("." * (_WIDTH - 1 - len(end)) + ("[^a-z]" if len(end) < 6 else "."[: _WIDTH - len(end)]) + end for end in ends)
    tails = "|".join(sorted({end[-3:] for end in ends}))
    return "(?:" + "|".join(f"(?<=(?:{tails}){between})(?<=(?:{whole}){between})" for between in separators) + ")"


_CLOCKS = "age idle elapsed duration latency took uptime time waited".split()
_MEASURES = (
    *"age idle elapsed duration latency took uptime eta walltime wall.time last.seen lastseen timestamp".split(),
    *(clock + unit for clock in _CLOCKS for unit in "ms _ms -ms _s _sec sec _secs secs _seconds -seconds seconds".split()),
    *"idle_for for_seconds forseconds for_ms ppid pid nonce try.after tryafter token.count".split(),
    *"attempt attempts retry retries try.count try.number empt.number retries.left".split(),
)
_PORTS = "source.port local.port from.port ephemeral.port client.port peer.port".split()

_NUMBER = re.compile(
    rf"""0(?<![a-z0_.]0)(?:
      x[0a-f]++                                                                              # address
    | 000-00-00(?:[t\ _-]00[:-]00(?:[:-]00(?:[.,-]0++)?)?(?:z|\ ?[+-]00:?00)?)?(?!0)             # date, time
    | 0000000[t_-]000000(?!0)                                                               # date, time
    | 0?:00:00(?<!:0:00:00)(?<!:00:00:00)(?:[.,]0++)?(?:\ ?[ap]m)?(?![:0])                       # clock, and after it:
        (?:\ {{1,9}}0++(?=\ [a-z0_-]{{1,60}}\.go:)|\ [a-z0_.-]{{1,60}}\ [a-z0_./-]{{1,40}}\[0++\])?  # pid of klog, syslog
    | (?P<epoch>)000000000(?:000|\.0++|)(?![0.])                                              # Unix time
    | 0000->(?<=:00000->)                                                                     # port of this end
    | [0a-z]{{25}}(?![0a-z_])                                                                  # ULID
    | 0*+(?:h\ ?0++)?(?:m\ ?0++)?(?:\.0++)?\ ?(?:                                              # duration
        (?:[mnu]|\xc2\xb5)?s(?:ec(?:ond)?s?)?(?![a-z0_])
      | m(?:sec|illiseconds?|ins?|inutes?)(?![a-z0_])
      | (?:[smhd]|(?:hour|day|week)s?)\ ago\b)
    | (?P<rate>)0*+(?:\.0++)?\ ?[kmgt]?i?b(?:ytes|its)?/s                                      # rate of a download
    | 0*+\ (?:attempts?|retries|tries)\ (?:left|remaining)
    | (?<=[\ :\#\t]0)(?:
        {_after(_MEASURES)}0*+(?:[.,:]0++)*+(?:\ of\ 0++|\ ?/\ ?0++)?
      | {_after("line column col".split())}0*+(?!\ of\b|\ ?/)
      | {_after(_PORTS)}000++
      | {_after(["try"], [chr(92) + " 0"])}0*+(?:\ of\ |/)0++
      | (?<=reference\ \#0)[0a-f.]++)
    | (?<=(?:rying|retry|tempt)\ \(0)0*+(?:\ of\ |/)0++
    )""".encode("latin-1"),
    re.VERBOSE,
)
_ID_NAMES = """request trace span ray chunk correlation session call process thread invocation operation incident
    activity transaction error event""".split()
_ID = re.compile(
    rf"""id(?:
      {_after(_ID_NAMES, ["id"])}|{_after(_ID_NAMES, ["[-_ ]id"])}
    )[\ :\#>(\\]{{1,6}}(?:root:)?((?=[a-z_.+-]*+0)[0a-z][0a-z_.+-]*+)""".encode(),
    re.VERBOSE,
)
_PREFIXES = "req msg evt resp run call toolu item".split()
_PREFIXED = re.compile(rf"_{_after(_PREFIXES, ['_'])}((?=[a-z]*+0)[0a-z]{{8,}}+)(?!_)".encode(), re.VERBOSE)
_DASHED = re.compile(
    rb"""-(?:
      (?<=[0a-f]{8}-)(?<![0a-z_][0a-f]{8}-)(?P<uuid>)[0a-f]{4}-[0a-f]{4}-[0a-f]{4}-[0a-f]{12}(?![0a-z_])
    | [0b-df-hj-np-tv-xz]{6,10}-[0b-df-hj-np-tv-xz]{5}(?![0a-z_-])                      # of a pod: no vowels
    | (?<=chatcmpl-)(?=[a-z]*+0)[0a-z]{8,}+
    )""",
    re.VERBOSE,
)
_TEMPORARY = re.compile(rb"/(?:tmp|var/folders|private/(?:tmp|var/folders))/([^\s\"'\\,;:)]++)")
_WINDOWS_TEMPORARY = re.compile(rb"\\temp\\{1,2}((?:[^\s\"',;:)\\]++(?:\\{1,2}(?![nrt\"]))?)++)")
_SPINNER = re.compile(rb"\xe2(?:\xa0[\x80-\xbf]|[\xa1-\xa3][\x80-\xbf]|\x97[\x90-\x93\xb4-\xb7])")
_PROGRESS = re.compile(rb"0(?<![a-z0_.]0)0*+(?:\.0++)?(?:%|/0++(?:\.0++)?|\ ?[kmgt]?i?b(?![a-z0_]))", re.VERBOSE)
_IN_PLAIN = ((_NUMBER, 0), (_ID, 1), (_PREFIXED, 1), (_DASHED, 0))
_SECONDS = frozenset(b"%d" % n for n in range(14, 20))
"""First digits of a Unix time between 2014 and 2033."""

Spans = list[tuple[int, int]]


def mask(text: bytes) -> bytes:
    """Replace what moves in a result by marks; of a long one only the beginning, the end and the length are kept."""
    return _masked(text if len(text) <= MAX_RESULT_BYTES else _shortened(text))


def _shortened(text: bytes) -> bytes:
    """Beginning and end of a text, cut at lines where one ends nearby, with the length of what is left out."""
    half = MAX_RESULT_BYTES // 2 - _ROOM
    head = text.rfind(b"\n", half - half // 4, half) + 1 or half
    tail = text.find(b"\n", len(text) - half, len(text) - half + half // 4) + 1 or len(text) - half
    return b"%b\x00%d\x00%b" % (text[:head], tail - head, text[tail:])


def _masked(text: bytes) -> bytes:
    plain = _BEFORE + text.translate(_PLAIN)
    spans: Spans = []
    progress = False
    for pattern, group in _IN_PLAIN:
        if (found := pattern.search(plain)) is None:
            continue
        for found in pattern.finditer(plain, found.start()):
            start, end = found.span(group)
            start -= len(_BEFORE)
            if found.lastgroup == "epoch" and text[start : start + 2] not in _SECONDS:
                continue
            progress = progress or found.lastgroup == "rate"
            spans.append((start - 8 if found.lastgroup == "uuid" else start, end - len(_BEFORE)))
    if (found := _TEMPORARY.search(text)) is not None:
        spans += [found.span(1) for found in _TEMPORARY.finditer(text, found.start())]
    if b"\\temp\\" in plain:
        spans += [(found.start(1) - len(_BEFORE), found.end(1) - len(_BEFORE)) for found in _WINDOWS_TEMPORARY.finditer(plain)]
    if not text.isascii() and _SPINNER.search(text) is not None:
        progress = True
        spans += [found.span() for found in _SPINNER.finditer(text)]
    if progress:
        spans += [(found.start() - len(_BEFORE), found.end() - len(_BEFORE)) for found in _PROGRESS.finditer(plain)]
    return _marked(text, spans) if spans else text


def _marked(text: bytes, spans: Spans) -> bytes:
    """Text with a mark in place of each span."""
    spans.sort()
    kept = []
    done = 0
    for start, end in spans:
        if start >= done:
            kept.append(text[done:start])
        done = max(done, end)
    kept.append(text[done:])
    return MARK.join(kept)
