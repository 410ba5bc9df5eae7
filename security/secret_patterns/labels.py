"""Labels before a value, such as `password:`, and whether the value is a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .values import CODE, DIGIT, VALUE, is_placeholder, looks_random

# Bytes by which a value without quotes is judged: a longer one would be read again for each label in it
LONGEST_BARE = 256


class SecretLabel(NamedTuple):
    """Label before a value, such as `password:`."""

    words: tuple[bytes, ...]  # every match begins with one of these, in lower case
    # expression over the text in lower case: label, separator, then the value in one of five groups
    pattern: re.Pattern[bytes]
    foreign: int = 0  # 0: English. 1: a word for a password in another language, 2: one for a key.


_SUFFIX = r"(?:[_ -]?(?:key_base|key|value|hash|string|data|id|b64|base64|\d{1,2}))?"
# A type between a name and its value: `token: &str = "..."`
_TYPE = r"(?:[ \t]{0,3}:[ \t]{0,3}&?[a-z][\w.|?]{0,24}(?:\[\w{1,20}\])?[ \t]{0,3}(?==[^=]))?"
_LINE = r"(?:\\*\n|\\+n)"
# Signs between a name and its value: the start of a block, an anchor, a tag, the next line, a list, kinds of strings
_LEAD = rf"(?:[|>][+-]?[ \t]{{0,4}}{_LINE}[ \t]{{0,32}}|{_LINE}[ \t]{{2,32}}|[&!][!\w]{{1,24}}[ \t]{{1,4}}|(?:\\*\"){{3}}(?:{_LINE} ?)?|[']['][']{_LINE}?|\[\s{{0,4}}(?=\\*[\"'])|[bu](?=\\*[\"']))?"
_WIDE = ("：", "＝", "是", "为", "為", "は", "는", "은")  # Separators of Chinese, Japanese and Korean


def _label(words: Iterable[str], label: str, separators: str = "", foreign: int = 0) -> SecretLabel:
    return SecretLabel(
        tuple(word.encode() for word in words),
        re.compile(
            (
                rf"({label})(?:\\*[\"'`])?[\])]?{_TYPE}[ \t]{{0,8}}"
                rf"(=>|:=|\?=|::(?=[ \t])|[:=](?![:=])|(?<=[ \t])(?:is|was)(?=[ \t]){separators})[ \t]{{0,8}}{_LEAD}"
                + VALUE.replace("]*))", f"]{{0,{LONGEST_BARE - 1}}}))").replace("([^\\s", r"((?:\[redacted\])?[^\s", 1)
            ).encode()
        ),
        foreign,
    )


_ENGLISH = {
    "pass": r"(?:word|wd|phrase|code)?(?:\x20nuova)?", "pwd": "", "secret": "", "token": "", "key": "", "credential": "s?",
    "otp": "", "pin": r"(?:[_\x20-]?code)?", "cvv": "2?", "cvc": "2?", "ssn": "", "sig": "(?:nature)?", "jwt": "",
    "sess": "(?:ion)?[_ -]?(?:id|key)", "sid": "", "seed": "[_ -]?phrase", "recovery": "[_ -]phrase",
    "mnemonic": "", "auth": "", "dsn": "", "psk": "",
}  # fmt: skip
_HEADS = {"sess": ("sess", "session"), "seed": ("seed",), "recovery": ("recovery",)}
_TAILS = {"sess": ("id", "key"), "seed": ("phrase",), "recovery": ("phrase",)}
PASSWORDS = (
    "passwort|kennwort|zugangscode|zugangsschlüssel|mot de passe|clé api|clé d'accès|clave de acceso|chave de acesso|chiave di accesso|code secret|contraseña|contrasena|clave|senha|palavra-passe|palavra passe"
    "|parola d'ordine|parola|wachtwoord|hasło|haslo|heslo|geslo|lozinka|jelszó|parolă|lösenord|losenord|passord|adgangskode"
    "|salasana|şifre|sifre|κωδικός|κωδικός πρόσβασης|пароль|парола|лозинка|סיסמה|ססמה|كلمة المرور|كلمة السر|رمز عبور"
    "|पासवर्ड|密码|密碼|口令|パスワード|暗証番号|비밀번호|암호|mật khẩu|รหัสผ่าน|kata sandi"
)
# Words for passwords, and for keys and tokens, in the languages that people write
_KEYS = (
    "schlüssel|schluessel|clé|clé d'api|chave|chave de api|chiave|chiave api|clave de api|sleutel|klucz|klucz api|ключ|jeton|токен"
    "|密钥|密鑰|金鑰|令牌|トークン|秘密鍵|토큰|비밀키"
)


# Adjectives that follow their noun in Romance languages
_WHICH = (
    "(?: (?:nueva|nuevo|actual|temporal|nova|novo|atual|nuova|nuovo|attuale|nouveau|actuel|provisoire|temporaire))?"
)


def _spellings(word: str) -> set[str]:
    """Return a word in lower case as bytes are: other letters than those of ASCII keep their case."""
    return {one.encode().lower().decode() for one in (word, word.capitalize(), word.upper())}


def _foreign_label(words: str, foreign: int) -> SecretLabel:
    spellings = sorted({one for word in words.split("|") for one in _spellings(word)}, key=lambda one: (-len(one), one))
    plain = "|".join(re.escape(one).replace("'", ".") for one in spellings if one.isascii() and one != "schluessel")
    other = "|".join(re.escape(one).replace("'", ".") for one in spellings if not one.isascii() or one == "schluessel")
    label = (f"(?:{other}|(?<![a-z])(?:{plain}))" if plain else f"(?:{other})") + _WHICH
    return _label((one.partition("'")[0] for one in spellings), label, "".join(f"|{one}" for one in _WIDE), foreign)


# Labels before values
LABELS = (
    *(
        _label(
            (word,) if " " not in more else [head + gap + tail for head in _HEADS[word] for gap in ("", "_", " ", "-") for tail in _TAILS[word]],
            word + more + _SUFFIX,
        )
        for word, more in _ENGLISH.items()
    ),
    *(_foreign_label(words, number) for number, words in enumerate((PASSWORDS, _KEYS), 1)),
)  # fmt: skip

MULTI_WORD = re.compile(rb"[a-z]+(?:[ ,]+[a-z]+){2,23}")  # Words behind a label of a phrase
REST = re.compile(rb"[^\s\"'`,;&<>\\]*")  # Rest of a value without quotes, after the part that is judged

_CALL = re.compile(rb"[A-Za-z_]\w*(?:\.\w+)*[(\[]")
_ENDS_LINE = re.compile(rb"[ \t]{0,8}(?:[\n\"'\\`]|\Z)")
_VERSION = re.compile(rb"\d+(?:\.\d+)+")
_REST_OF_LINE = re.compile(rb"[^\n\"'\\]*")
_ENV = re.compile(rb"(?<![A-Z0-9_])(?:(?<![a-z])[A-Z]|[A-Z0-9_][0-9_]*+[A-Z])[A-Z0-9_]*+$")
_IDENTIFIER = re.compile(rb"[a-z_]+")
_FOUND = re.compile(rb"\xff+|\[redacted(?::[0-9a-f]{16})?\]")  # Parts of a value that are hidden already
# A sentence in Chinese, Japanese or Korean about passwords has no long word of ASCII
_EAST_ASIAN, _ASCII_WORD = re.compile(rb"[\xe3-\xed]"), re.compile(rb"[!-~]{5}")
_TEACHES = re.compile(rb"(?i:to (?:reset|change|recover|choose|set) (?:your|the|a) [a-z]{3,10})$")
_KEY_BEFORE = re.compile(
    rb"(?:api|access|private|account|master|secret|sign(?:ing)?|encryption|license|ssh|shared|session|deploy|storage"
    rb"|subscription|consumer|client|admin|write|auth|hmac|aes|rsa|service|app|application|integration|ingest|project)"
    rb"[_ -]?$"
)
_PHRASES = frozenset(
    {b"pass", b"passphrase", b"password", b"mnemonic", b"seed phrase", b"seed_phrase", b"recovery phrase"}
)
_NUMBERS = frozenset(
    {b"otp", b"pin", b"pin code", b"pin_code", b"pin-code", b"pincode", b"cvv", b"cvc", b"cvv2", b"cvc2", b"ssn"}
)
_STRONG = (b"pass", b"pwd", b"secret", b"credential", b"mnemonic", b"seed", b"recovery")


def labelled_secret(  # noqa: C901, PLR0912 - a classifier is a list of early returns
    match: re.Match[bytes], text: bytes, foreign: int = 0
) -> tuple[int, int] | None:
    """Place of the secret in a match of one of `LABELS`; None where the value is none. `text` is in its own case."""
    label, separator = match.group(1).rstrip(b"0123456789"), match.group(2)
    group = match.lastindex or 0
    start, end = match.span(group)
    value = _FOUND.sub(b"", text[start:end])  # the rest alone is judged, so that to redact twice changes nothing
    bare = group == 7
    before = text[max(0, match.start() - 40) : match.end(1)]
    env = _ENV.search(before) is not None and (len(label) > 3 or text[match.start() - 1 : match.start()] == b"_")
    if not value or is_placeholder(value) or (bare and text[end : end + 1] in {b"(", b"["}):
        return None
    if bare and (_is_call(value) or (value.isalpha() and _TEACHES.search(before))):
        return None
    lead = text[match.end(2) : start]
    if bare and b"\n" in lead:
        if lead.strip()[:1] in {b"|", b">"}:
            end = _REST_OF_LINE.match(text, end).end()  # type: ignore[union-attr] # it matches anything
        elif not lead.strip() and not (
            separator == b":"
            and len(value) > 5
            and value[-1:] != b":"
            and looks_random(value)
            and _ENDS_LINE.match(text, end)
        ):
            return None  # the line after `password:` is not its value
    if foreign:
        fits = len(value) >= 16 and _is_opaque(value) if foreign > 1 else len(value) >= 5 and looks_random(value)
        fits = fits and (_EAST_ASIAN.search(value) is None or _ASCII_WORD.search(value) is not None)
        return (start, _without_stop(text, start, end) if bare else end) if fits else None
    in_word = text[match.start() - 1 : match.start()].isalpha() and match.start() > 0
    camel = text[match.start() : match.start() + 1].isupper()
    if (
        in_word
        and not camel
        and not label.startswith((b"pass", b"secret", b"token", b"pwd", b"key", b"session", b"sessid"))
    ):
        return None  # `compass`, `topping`, `inside`
    if in_word and label == b"pass" and not env:
        return None
    if label in _NUMBERS:
        number = len(value) <= 16 and len(DIGIT.findall(value)) >= 3 and not _VERSION.fullmatch(value)
        return (start, end) if number else None
    if label == b"pass" and len(value) < 6 and value.isdigit():
        return None  # `pass: 12` counts tests
    if label == b"secret" and separator == b":" and text[match.start() - 1 : match.start()] == b":":
        return None  # `arn:aws:secretsmanager:...:secret:name`
    strong = label.startswith(_STRONG)
    if separator in {b"is", b"was"} and bare:
        if value.endswith((b"ed", b"ing", b"ly")) or not (strong or looks_random(value)):
            return None
        return start, _without_stop(text, start, end)
    if env:
        return start, end
    if label in {b"key", b"auth", b"sig", b"signature", b"dsn", b"sid"} or label.startswith(b"sess"):
        if label == b"key" and _KEY_BEFORE.search(before[: -len(label)].lower()) is None:
            return (start, end) if len(value) >= 20 and _is_opaque(value) else None
        return (
            (start, end) if len(value) >= 8 and looks_random(value) and not _is_expression(value, bare=bare) else None
        )
    if _is_expression(value, bare=bare):
        return None
    if label in _PHRASES and separator == b":" and bare:
        words = MULTI_WORD.match(text, start)
        if words is not None and words.end() > end and label != b"password":
            return start, words.end()
    if not strong and bare and (_IDENTIFIER.fullmatch(value) or (value.isdigit() and len(value) < 6)):
        return None
    if not strong and not bare and (len(value) < 6 or (b" " in value and not looks_random(value))):
        return None
    return start, _without_stop(text, start, end) if bare else end


def _is_opaque(value: bytes) -> bool:
    """Whether a value is one word of letters and digits, like a key in base64 or hex."""
    return value.replace(b"+", b"").replace(b"/", b"").rstrip(b"=").isalnum() and looks_random(value)


def _is_expression(value: bytes, *, bare: bool) -> bool:
    """Whether an unquoted value is program code: `self.token`, `user_password`."""
    if not bare:
        return False
    if CODE.fullmatch(value):
        return not looks_random(value.rpartition(b".")[2])
    return _IDENTIFIER.fullmatch(value) is not None and any(
        core in value for core in (b"pass", b"token", b"secret", b"key")
    )


def _is_call(value: bytes) -> bool:
    """Whether an unquoted value begins like a call or an index: `tokenizer.next()`, `os.environ[`."""
    call = _CALL.match(value)
    if call is None:
        return False
    return not looks_random(call.group()) or b"." in call.group() or value[-1:] in {b")", b"]", b"(", b"["}


def _without_stop(text: bytes, start: int, end: int) -> int:
    """Return the end of a value without the full stop of its sentence."""
    return end - 1 if end - start > 1 and text[end - 1 : end] in {b".", b":", b"!"} else end
