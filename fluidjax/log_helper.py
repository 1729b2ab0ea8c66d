"""Loggers that do not interfere with a script's own logging."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """A logger that writes to stderr without propagating, so that ``logging.basicConfig`` remains usable by scripts.

    Args:
        name: its name.
        level: minimum level to log.
        fmt: line format, as for ``logging.Formatter``.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = logging.StreamHandler()
    if fmt:
        handler.setFormatter(logging.Formatter(fmt=fmt))
    logger.addHandler(handler)
    logger.propagate = False
    return logger
