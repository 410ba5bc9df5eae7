"""What a value that may be a secret looks like: random, a placeholder, code; and checks of shapes by it."""

from __future__ import annotations

import re

from .names import is_secret_name

UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"  # Form of a UUID

# A value after a name or a flag, in one of five groups: JSON in JSON, three kinds of quotes, none
VALUE = (
    r"(?:\\++[\"']((?:[^\n\"\\]++|\\++(?![\"']))*)"  # JSON in JSON
    r"|\"((?:[^\"\\\n]|\\.)*)|'((?:[^'\\\n]|\\.)*)|`([^`\n]*)"
    r"|([^\s\"'`,;&<>\\{}()\[\]|][^\s\"'`,;&<>\\]*))"
)

QUOTE = r"(?:\\*[\"'`])?"  # A quote, with backslashes before it in JSON; or none
CODE = re.compile(rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")  # Names joined by dots, as in program code


DIGIT = re.compile(rb"[0-9]")
_LETTER = re.compile(rb"[A-Za-z]")
# Names of algorithms, ports and files
_NO_PASSWORD = re.compile(
    rb"(?i:(?:hmac-?)?(?:sha|md|oauth|argon|base|pbkdf|aes|utf|bcrypt|scrypt|http|tls|ssl|win|x|v)-?\d[\w.-]*|[\w-]+:\d+|[\w-]+\.[a-z]{1,5}\d?)"
)
# Values that are not secrets: types, constants, and words of sentences about secrets
_WORDS = frozenset(
    b"""none null nil true false undefined nan str string int integer bytes bool boolean float any optional object
    number text unicode list dict tuple callable path secretstr self this required optional invalid wrong missing
    expired empty not incorrect unknown set unset valid correct used needed stored a an the too in of on at to for from
    with only already always never still now here there present absent available unavailable provided given your my
    their our its it that which what where when how if or and as is was be been being same different new old default
    mandatory allowed denied weak strong short long secure insecure safe compromised being public private read ok
    changeme placeholder example redacted hidden masked omitted removed filtered char varchar blob uuid enum type
    const let var function return await async void final static readonly input output hash hashed encrypted plain
    value values name names field fields found gone lost bad good raise throw continue break else print yes no ok""".split()
)
# Byte, invalid in UTF-8, that stands for each byte of a secret that is already found
MASK = b"\xff"
_PLACEHOLDER = re.compile(
    rb"\xff.*|\$\w+|\$\{.*|\$\(.*|\{\{?.*|%\w+%|<.*|\.\.\.+|[*xX\xe2\x80\xa2#_-]+|%[sdr]|\[redacted.*|\(.*|\[.*|@\w+|[-+*/|&!?.,:;=~^{}()\[\]]*"
    rb"|(?:[A-Z]+[_-])*(?:TOKEN|KEY|PASSWORD|PASSPHRASE|SECRET|PIN|FILE|STRING|VALUE)\]?",  # `[--token TOKEN]`
    re.DOTALL,
)


def looks_random(value: bytes) -> bool:
    """Whether a word mixes letters with digits, or lower with upper case after its first letter."""
    tail = value[1:]
    return DIGIT.search(value) is not None or (tail != tail.lower() and value != value.upper())


def is_placeholder(value: bytes) -> bool:
    """Whether a value is a placeholder: a variable, a mask, a type, a word about secrets."""
    return _PLACEHOLDER.fullmatch(value) is not None or value.strip(b".,:!?)]}").lower() in _WORDS


def has_entropy(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the secret mixes letters with digits or cases, unlike prose."""
    start, end = match.span(match.lastindex or 0)
    return looks_random(text[start:end])


def is_given(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the secret is one, not a placeholder."""
    start, end = match.span(match.lastindex or 0)
    return not is_placeholder(text[start:end])


def is_random_value(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the secret is no placeholder and unlike prose."""
    return is_given(match, text) and has_entropy(match, text)


def is_mixed(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the secret, up to a slash, looks like a password."""
    return is_password(text[slice(*match.span(match.lastindex or 0))].partition(b"/")[0])


def is_password(value: bytes) -> bool:
    """Whether a value has letters and digits, as passwords have and words do not."""
    return (
        len(value) > 4
        and DIGIT.search(value) is not None
        and _LETTER.search(value) is not None
        and not is_placeholder(value)
        and _NO_PASSWORD.fullmatch(value) is None
    )


def is_named(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the name beside a value, in the first group, is that of a secret, and the value is one."""
    return is_given(match, text) and is_secret_name(text[slice(*match.span(1))].strip().decode("utf-8", "replace"))


def is_named_and_random(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a value with a name beside it is a secret by both."""
    return is_named(match, text) and has_entropy(match, text)
