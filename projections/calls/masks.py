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
from collections.abc import Iterable, Mapping
from functools import lru_cache
from zlib import crc32

# Longer results are represented by their beginning and end, together this long, and their length
MAX_RESULT_BYTES = 1024

# Longer failures are represented by their beginning and end, together this long, and the number of lines between
MAX_FAILURE_CHARS = 2048

MAX_REQUEST_CHARS = 300  # Number of characters of a request that are looked for in its failure
MARK = b"*"  # Stands for what moves. One byte, so that no text grows, and one that continues no number and no word.
ECHO = "<arg>"  # Stands for what a failure repeats of its call's request

# Letters for the digits of a checksum, which are no number that moves
_LETTERS = bytes.maketrans(b"0123456789", b"ghijklmnop")

_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PLAIN = bytes.maketrans(b"123456789\"'=" + _UPPER, b"000000000  :" + _UPPER.lower())
_WIDTH = 9  # Width of names in look-behinds, which need one width for all alternatives
_OFFSET = _WIDTH + 4
_BEFORE = b" " * _OFFSET  # Put before a plain form, so that look-behinds reach a boundary at its beginning, too

# What else than one character stands between a name and its value: as `name: 0`, `"name": 0`, `\"name\": 0`
_SEPARATORS = (r"(?::\ |\ :|\ \#|[.]\ |\\:)", r"\ :\ ", r"\\\ :", r"\\\ :\ ", r"\\\ :\\\ ")


def _after(names: Iterable[str], separator: str) -> str:
    """Look-behind for one of `names` and a separator; `.` is any character, names of up to five are whole words."""
    ends = dict.fromkeys(name[-_WIDTH:] for name in names)
    whole = []
    for end in ends:
        room = _WIDTH - len(end)
        if len(end) > 5:
            whole.append("." * room + end)
        else:  # in JSON a word may begin after an escaped line break
            whole += ["." * (room - 1) + "[^a-z]" + end, "." * (room - 2) + r"\\[nrt]" + end]
    return f"(?<=(?:{'|'.join(whole)}){separator})"


def _tails(names: Iterable[str]) -> str:
    """Alternatives for the last three characters of names, grouped by the first of them."""
    tails: dict[str, list[str]] = {}
    for tail in sorted({name[-3:] for name in names}):
        tails.setdefault(tail[0], []).append(tail[1:])
    return "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in tails.items())


def _labelled(values: Mapping[tuple[str, ...], str]) -> str:
    """Expression for values after names, at their first digit; what mostly stands there is looked at first."""
    tails = _tails(name for names in values for name in names)

    def after(between: str) -> str:
        alternatives = "|".join(_after(names, between + "0") + value for names, value in values.items())
        return f"(?<=(?:{tails}){between}0)(?:{alternatives})"

    return (
        rf"(?<=[a-z][\ :\#\t>]0){after('[ :#>' + chr(92) + 't]')}"
        rf"|(?<=(?:[:.]\ |[\ \\]:|\ \#|\\\ )0)(?:{'|'.join(map(after, _SEPARATORS))})"
    )


_CLOCKS = "age idle elapsed duration latency took uptime time waited".split()
_UNITS = "ms _ms -ms _s _sec sec _secs secs _seconds -seconds seconds".split()
_MEASURES = (
    *"age idle elapsed duration latency took uptime eta walltime wall.time last.seen lastseen timestamp".split(),
    *(clock + unit for clock in _CLOCKS for unit in _UNITS),
    *"idle_for for_seconds for-seconds forseconds for_ms ppid pgid pid nonce try.after tryafter token.count".split(),
    *"attempt attempts retry retries try.count try.number empt.number retries.left".split(),
)
_PORTS = tuple("source.port local.port from.port ephemeral.port client.port peer.port".split())

_VALUES: dict[tuple[str, ...], str] = {
    _MEASURES: r"0*+(?:[.,:]0++)*(?:\ of\ 0++|\ ?/\ ?0++)?",
    tuple(":.line ,.line at.line on.line ,.column 0.column ,.col 0.col".split()): (
        r"(?<!\ :0)(?<!\ :\ 0)0*+(?!\ of\b|\ ?/)"  # not of JSON, where it is a place that was asked for
    ),
    _PORTS: "000++",
    ("try",): r"0*+(?:\ of\ |/)0++",
    ("reference",): r"[0a-f.]++",
}
_NUMBER = re.compile(
    rf"""0(?<![^\\][a-z0.]0)(?:
      0(?:
          00[/-]00[/-]00(?:[t\ _-]00[:-]00(?:[:-]00(?:[.,-]0++)?)?(?:z|\ ?[+-]00:?00)?)?(?!0)     # date, time
        | 000000[t_-]000000(?!0)                                                            # date, time
        | :00:00(?<!:00:00:00)(?:[.,]0++)?(?:\ ?[ap]m)?(?![:0])                             # clock, and after it:
            (?:\ {{1,9}}0++(?=\ [a-z0_-]{{1,60}}\.go:)|\ [a-z0_.-]{{1,60}}\ [a-z0_./-]{{1,40}}\[0++\])?  # klog, syslog
        | 0000000(?P<epoch>)0(?:000|\.0++|)(?![0.])                                         # Unix time
        | 000->(?<=:00000->))                                                               # port of this end
    | :00:00(?<!:0:00:00)(?:[.,]0++)?(?:\ ?[ap]m)?(?![:0])
    | x[0a-f]++                                                                             # address
    | [0a-f][0a-f]{{2}}-[0a-f]{{4}}-(?P<uuid>)                                               # UUID
        (?<=[0a-f]{{8}}-[0a-f]{{4}}-0[0a-f]{{3}}-[0a-f]{{4}}-)[0a-f]{{12}}(?![0a-z])
    | 0*+(?=[hmsdnukgtb.\xc2]|\ [hmsdnukgtbraw\xc2])(?:h\ ?0++)?(?:m\ ?0++)?(?:\.0++)?\ ?(?:
          (?:[smhd]|(?:second|sec|minute|min|hour|day|week)s?)\ ago\b                       # duration
        | (?:[mnu]|\xc2\xb5)?s(?:ec(?:ond)?s?)?(?![a-z0_])
        | m(?:sec|illiseconds?|ins?|inutes?)(?![a-z0_])
        | [kmgt]?i?b(?:ytes|its)?/s                                                         # rate of a download
        | (?:attempts?|retries|tries)\ (?:left|remaining))
    | (?<=(?:out|\ in)\[0)0*+(?=\])                                                           # cell of a notebook
    | 0?h\ ?00(?:m(?:in)?\ ?00s?)?(?![a-z0_])                                                # French clock
    | 0*+(?=x\ |\ ti|\xc3)(?:x|\ times|\xc3\x97)\ (?:in\ )?this\ (?:session|turn|conversation)\b      # counted calls
    | (?<=(?:[a-z:.\\][\ :\#\t>]|\ [:\#(])0)(?:
        {_labelled(_VALUES)}
      | (?<=(?:rying|retry|tempt)\ \(0)0*+(?:\ of\ |/)0++)
    )""".encode(),
    re.VERBOSE,
)
_ID_NAMES = """request trace span ray chunk correlation session call process thread invocation operation incident
    activity transaction error event""".split()
_ID_TAILS = _tails(_ID_NAMES)
_ID = re.compile(
    rf"""id[\ :\#>(\\](?:
        (?<=(?:{_ID_TAILS})id.){_after(_ID_NAMES, "id.")}|(?<=(?:{_ID_TAILS})[-_ ]id.){_after(_ID_NAMES, "[-_ ]id.")}
    )[\ :\#>(\\]{{0,5}}(?:root:)?((?=[a-z_.+-]*+0)[0a-z][0a-z_.+-]*+)""".encode(),
    re.VERBOSE,
)
_TEMPORARY = re.compile(rb"/(?:tmp|var/folders|private/var/folders)/")
_REST_OF_PATH = re.compile(rb"[^\s\"'\\,;:)]++(?:\\(?:\\|(?![nrt\"]))[^\s\"'\\,;:)]++)*")
_SOURCES = """pyi? go rs jsx? mjs cjs tsx? vue svelte java kts? scala c cc cpp cxx h hpp cs rb php p[lm] sh bash zsh sql
    swift lua exs? erl hs clj dart r jl ps1 s?css html json ya?ml toml xml md txt tf proto gradle cfg ini""".split()
_IN_FAILURE = re.compile(
    rf"""(?<![a-z0_])(?:
        (?=[a-f]*+0)(?=0*+[a-f])[0a-f]{{8,64}}(?![a-z0_])                                   # hash
      | 0[0a-z]{{25}}(?![a-z0_])                                                            # ULID
      | (?:req|msg|evt|resp|run|call|toolu|item|chatcmpl)[_-](?=[a-z]*+0)[0a-z]{{8,}}+       # id with a prefix
      | (?:line|column|col|position|char|offset|goroutine|ray)[\ :]{{1,2}}(0++)(?![a-z0_]|\ of\b))
    | -[0b-df-hj-np-tv-xz]{{6,10}}-[0b-df-hj-np-tv-xz]{{5}}(?![a-z0_-])                      # of a pod: no vowels
    | \\temp\\{{1,2}}([^\s\\,;:)]++(?:\\{{1,2}}[^\s\\,;:)]++)*)                                 # temporary path
    | \.(?:{"|".join(_SOURCES)})(?::(0++(?::0++)?)|\((0++(?:,\ ?0++)?)\))                    # place in a file
    | (?<=[a-z)\]>]):(0++:0++)
    | sh:\ ?(0++)(?=:)
    | [\[(]process\ (0++)[\])]
    | [a-z]\[(0++)\]:(?=\ )                                                                # head of a log line
    """.encode(),
    re.VERBOSE,
)
_EASTERN = re.compile(  # dates and clocks in Chinese, Japanese and Korean
    (
        "0{1,4}(?:年|년 ?)0{1,2}(?:月|월 ?)0{1,2}(?:日|일)|0{1,2}(?:時|时|시 ?)0{1,2}(?:分|분)(?: ?0{1,2}(?:秒|초))?"
    ).encode()
)
_EASTERN_SIGNS = tuple(sign.encode() for sign in "年년時时시")  # Each date and clock of `_EASTERN` has one of them
# Their first bytes: one byte is found much faster than three
_EASTERN_BYTES = tuple(dict.fromkeys(sign[:1] for sign in _EASTERN_SIGNS))
_SPINNER = re.compile(rb"\xe2(?:\xa0[\x80-\xbf]|[\xa1-\xa3][\x80-\xbf]|\x97[\x90-\x93\xb4-\xb7])")
_PROGRESS = re.compile(rb"0(?<![a-z0_.]0)0*+(?:\.0++)?(?:%|/0++(?:\.0++)?|\ ?[kmgt]?i?b(?![a-z0_]))", re.VERBOSE)
_UUID_HEAD = 14  # Characters of a UUID before its version, a digit, where it is found
_SECONDS = frozenset(b"%d" % n for n in range(14, 20))  # First digits of a Unix time between 2014 and 2033


_BREAK = re.compile(r"([\s\"'`()\[\]{}<>:=,;|&]++)")
_QUOTE = re.compile(r'(?<!\\)"')
_SUBSTITUTE = "\x1a"
_ECHOES = re.compile(r"\x1a(?:[^\w\x1a]{0,4}\x1a)+")
# Words of error messages, which are no echo of a request that holds them, too
_PROSE = frozenset(
    """access already and are argument arguments available bad been before but call cannot command connection content
    could denied directory does doesn't error exist exists expected fail failed failure file files for found from has
    have input into invalid key line missing must name not null object open option path permission please read replace
    required run string such text than that the then this timeout timed tool type undefined unexpected unknown unless
    use user value was when while will with write""".split()
)


_SNAPSHOT = re.compile(rb"(?<=ref=s)[0-9]{1,9}(?=e[0-9])|(?<=uid=)[0-9]{1,9}(?=_[0-9])")


def without_snapshots(raw: bytes) -> bytes:
    """Replace the number of a browser's snapshot in the references to its elements: `[ref=s2e9]`, `uid=3_9`."""
    if b"ref=s" in raw or b"uid=" in raw:
        return _SNAPSHOT.sub(MARK, raw)
    return raw


def mask(text: bytes) -> bytes:
    """Replace what moves in a result by marks.

    Of a long one the beginning, the end and a checksum of the rest are kept, in which anything that moves counts.
    """
    if len(text) > MAX_RESULT_BYTES:
        half = MAX_RESULT_BYTES // 2
        rest = (b"%x" % crc32(text[half:-half])).translate(_LETTERS)
        text = text[:half] + b"\x00%b\x00" % rest + text[-half:]
    return _masked(text)


def _masked(text: bytes) -> bytes:
    plain = text.translate(_PLAIN)
    temporary = b"/tmp/" in plain or b"/folders/" in plain
    if not (temporary or b"0" in plain) and text.isascii():
        return text
    plain = _BEFORE + plain
    spans: list[tuple[int, int]] = []
    if _ID.search(plain):
        spans += [found.span(1) for found in _ID.finditer(plain)]
    if temporary:
        spans += _paths(_BEFORE + text, plain)
    if not text.isascii():
        if any(map(text.__contains__, _EASTERN_BYTES)) and any(map(text.__contains__, _EASTERN_SIGNS)):
            spans += [found.span() for found in _EASTERN.finditer(plain)]
        if _SPINNER.search(plain):
            spans += [found.span() for found in _SPINNER.finditer(plain)]
            spans += [found.span() for found in _PROGRESS.finditer(plain)]
    if spans:
        text = _marked(_BEFORE + text, sorted(spans))
        plain = _BEFORE + text.translate(_PLAIN)
    number = _NUMBER.search(plain)
    return text if number is None else _without_numbers(_BEFORE + text, plain, number.start())


def _without_numbers(text: bytes, plain: bytes, first: int) -> bytes:
    """Text with marks in place of moving numbers, of which the first stands at `first`."""
    kept = []
    done = _OFFSET
    for found in _NUMBER.finditer(plain, first):
        start, end = found.span()
        if kind := found.lastgroup:
            if kind == "uuid":
                start -= _UUID_HEAD
            elif text[start : start + 2] not in _SECONDS:
                continue
        kept.append(text[done:start])
        done = end
    kept.append(text[done:])
    if b"b/s" not in plain:
        return MARK.join(kept)
    text = _BEFORE + MARK.join(kept)
    return _marked(text, [found.span() for found in _PROGRESS.finditer(text.translate(_PLAIN))])


def _paths(text: bytes, plain: bytes) -> Iterable[tuple[int, int]]:
    """Places of what follows the names of temporary folders."""
    done = 0
    for found in _TEMPORARY.finditer(plain):
        if found.end() > done and (rest := _REST_OF_PATH.match(text, found.end())):
            done = rest.end()
            yield rest.span()


def _marked(text: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    """Text with marks in place of spans, which are in order of their beginnings."""
    kept = []
    done = _OFFSET
    for start, end in spans:
        if start >= done:
            kept.append(text[done:start])
            done = end
    kept.append(text[done:])
    return MARK.join(kept)


def failure_text(message: str, request: str) -> bytes:
    """Text by which failures are told apart: without what moves, and without what it repeats of its call's request.

    Args:
        message: what the failure says.
        request: the call's command line, or its arguments as canonical JSON; possibly cut or redacted.
    """
    if len(message) > MAX_FAILURE_CHARS:
        half = MAX_FAILURE_CHARS // 2
        between = message.count("\n", half, len(message) - half)
        message = f"{message[:half]}\n... {between} lines ...\n{message[-half:]}"
    return _failure_text(message, request[:MAX_REQUEST_CHARS])


WITHHELD = re.compile(r"withheld [0-9a-f]{12}")
"""Message that stands for one which a guard did not send: its digest, made of the text without what moves."""


@lru_cache(maxsize=2048)
def _failure_text(message: str, request: str) -> bytes:
    """Same for a text that is short enough; cached, since an agent that is stuck repeats its failures."""
    if WITHHELD.fullmatch(message):
        return message.encode()
    if request:
        message = _without_echo(message, request)
    text = _BEFORE + _masked(message.encode(errors="replace"))
    plain = text.translate(_PLAIN)
    if b"0" in plain:
        text = _marked(text, [found.span(found.lastindex or 0) for found in _IN_FAILURE.finditer(plain)])
    return b" ".join(text.split())


def _without_echo(message: str, request: str) -> str:
    """Message with a marker in place of the request, its lines and its words, where they stand as whole words."""
    lines = request.splitlines()
    if request[0] in "{[":
        strings = (
            text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\") for text in _QUOTE.split(request)
        )
        lines = [line for text in strings for line in text.splitlines()]
    pieces = {piece for line in lines if len(piece := line.strip()) >= 4 and piece.lower() not in _PROSE}
    for piece in sorted({*pieces, request.strip()} - {""}, key=len, reverse=True):
        if piece in message:
            message = _substituted(message, piece)
    words = set(_BREAK.split("\n".join(lines)))
    for word in [word for word in words if "/" in word or "\\" in word]:
        words.update((word.rstrip("/\\"), word.rsplit("/", 1)[-1], word.rsplit("\\", 1)[-1]))
    tokens = _BREAK.split(message)
    for place, token in enumerate(tokens):
        if len(token) >= 3 and (token in words or token.rstrip(".!?") in words) and token.lower() not in _PROSE:
            tokens[place] = _SUBSTITUTE
    return _ECHOES.sub(_SUBSTITUTE, "".join(tokens)).replace(_SUBSTITUTE, ECHO)


def _substituted(text: str, piece: str) -> str:
    """Text with a substitute in place of each `piece` that neither continues a word nor is continued by one."""
    kept = []
    done = 0
    start = text.find(piece)
    while start >= 0:
        end = start + len(piece)
        continues = start > 0 and text[start - 1].isalnum() and piece[0].isalnum()
        continued = end < len(text) and text[end].isalnum() and piece[-1].isalnum()
        if continues or continued:
            start = text.find(piece, start + 1)
            continue
        kept.append(text[done:start])
        done = end
        start = text.find(piece, end)
    return _SUBSTITUTE.join([*kept, text[done:]])
