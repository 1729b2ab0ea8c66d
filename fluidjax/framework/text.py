"""Messages as text, in protobuf's text format, which is how Fluid prints."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format


def message_text(message: Any, throw_on_error: bool) -> str:
    """The text of a message. With `throw_on_error`, ValueError when a required field is missing."""
    if throw_on_error and not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise ValueError(
            f"{type(message).__name__} is not complete: {missing} not set. Set it, or ask for the text with "
            "throw_on_error=False."
        )
    return printable(text_format.MessageToString(message))


def printable(text: str) -> str:
    """Text without characters that a terminal acts on, such as escape sequences in the names of a file's variables.

    They are written as the text format writes bytes, \\nnn in octal.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _octal(c) for c in text)


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))


def indent(text: str, by: str = "  ") -> str:
    """Every line moved right."""
    return "".join(by + line for line in text.splitlines(keepends=True))
