"""``paddle.distributed.utils``: what scripts that start jobs themselves need."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from fluidjax.launching.roles import free_ports
from fluidjax.paddle.distributed.launch import truth

__all__ = ["add_arguments", "find_free_ports", "get_host_name_ip"]


def find_free_ports(num: int) -> set[int]:
    """``num`` free ports of this machine; nothing reserves them."""
    return set(free_ports(num))


def get_host_name_ip() -> tuple[str, str] | None:
    """(host name, address) of this machine; None where its name has no address."""
    try:
        name = socket.gethostname()
        return name, socket.gethostbyname(name)
    except OSError:
        return None


def add_arguments(
    argname: str, type: Any, default: Any, help: str, argparser: argparse.ArgumentParser, **kwargs: Any
) -> None:
    """Add ``--argname`` to a parser; ``bool`` takes true and false as words."""
    taken = truth if type is bool else type
    argparser.add_argument(f"--{argname}", default=default, type=taken, help=f"{help} Default: %(default)s.", **kwargs)
