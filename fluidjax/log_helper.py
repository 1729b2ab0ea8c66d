"""Loggers that leave the script's own logging alone."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """A logger that writes to stderr itself and hands nothing on, so that ``logging.basicConfig`` is left to scripts.

    Args:
        name: its name.
        level: the least level that it writes.
        fmt: the form of a line, as for ``logging.Formatter``.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = logging.StreamHandler()
    if fmt:
        handler.setFormatter(logging.Formatter(fmt=fmt))
    logger.addHandler(handler)
    logger.propagate = False
    return logger
