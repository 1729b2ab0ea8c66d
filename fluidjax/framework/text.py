"""Messages in protobuf's text format, as printed by Fluid."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format


def message_text(message: Any, throw_on_error: bool) -> str:
    """The text of a message. With `throw_on_error`, raises ValueError if a required field is missing."""
    if throw_on_error and not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise ValueError(
            f"{type(message).__name__} is not complete: {missing} not set. Set it, or ask for the text with "
            "throw_on_error=False."
        )
    return printable(text_format.MessageToString(message))


def printable(text: str) -> str:
    """Escape characters that a terminal interprets, such as escape sequences in variable names read from a file.

    They are written like bytes in the text format, \\nnn in octal.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _octal(c) for c in text)


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))


def indent(text: str, by: str = "  ") -> str:
    """Indent every line."""
    return "".join(by + line for line in text.splitlines(keepends=True))
