"""Texts of others made harmless to look at: control characters and those that turn the direction of writing."""

from __future__ import annotations

_SHOWN = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
                 *range(0x2066, 0x206A), 0xFEFF)
}  # fmt: skip
"""Characters that command a terminal or turn the direction of writing, as they are shown; without tab and line end."""


def visible(text: str) -> str:
    """A text that commands no terminal, whoever chose the names in it."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)
