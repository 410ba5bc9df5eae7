"""Numbers of cards and accounts, with their check digits, and e-mail addresses."""

from __future__ import annotations

import re

# Thirteen to nineteen digits, as on a payment card; a secret if the check digit is valid
CARD = re.compile(rb"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w.-]|\.\d)")

_CARD_NUMBER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6[0-9]\d{14}(?:\d{1,3})?"
    r"|(?:50|5[6-8])\d{10,17}"
)

# Country, check digits and account; a secret if length and checksum are valid
IBAN = re.compile(rb"(?<![A-Za-z0-9])([A-Z]{2})\d{2}(?:[ -]?[A-Z0-9]){11,30}")

EMAIL = re.compile(rb"(?<![\w.+%-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")

# Characters of an IBAN, by country
IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18,
    "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24,
    "XK": 20,
}  # fmt: skip


def is_card(digits: str) -> bool:
    """Whether this is a card number: a network's prefix and length, and a valid check digit (Luhn)."""
    plain = "".join(filter(str.isdecimal, digits))
    if _CARD_NUMBER.fullmatch(plain) is None:
        return False
    numbers = list(map(int, plain))
    doubled = [sum(divmod(2 * number, 10)) for number in numbers[-2::-2]]
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(numbers)) > 1


def iban_length(text: str) -> int:
    """Return the length of the valid IBAN at the start of `text`, spaces included; 0 without one."""
    wanted = IBAN_LENGTHS.get(text[:2], 0)
    plain = ""
    for position, character in enumerate(text):
        plain += "" if character in " -" else character
        if len(plain) == wanted:
            number = int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4]))
            return position + 1 if number % 97 == 1 else 0
    return 0
