"""The ``fluidjax`` command, with one module of this package per subcommand."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.version import package_version
from fluidjax.command.terms import BadUse

# The modules of the subcommands, named like them.
COMMANDS = tuple("run launch info explain check verify draw bench serve convert optimize cache doctor".split())


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns its exit status: 0 for success, 1 for a negative answer, 2 for bad usage."""
    options = _parse(list(sys.argv[1:] if argv is None else argv))
    if options.command == "run":
        return _main(options)
    try:
        return _main(options)
    except (ValueError, OSError, EnforceNotMet) as error:
        print(f"fluidjax {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _main(options: argparse.Namespace) -> int:
    try:
        return options.main(options)
    except BadUse as error:
        print(f"fluidjax: {error}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    """Reports usage errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; '{self.prog} --help' shows what there is\n")


def _module(command: str) -> Any:
    """A subcommand's module. They are imported when asked for: some export models, which takes a tenth of a second."""
    return importlib.import_module(f"fluidjax.command.{command}")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="fluidjax", description="PaddlePaddle Fluid's programs on JAX.")
    parser.add_argument("--version", action="version", version=f"fluidjax {package_version()}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = [name for name in argv[:1] if name in COMMANDS]
    for command in map(_module, asked or COMMANDS):
        verb = verbs.add_parser(command.NAME, help=command.HELP, description=(command.__doc__ or "").replace("``", ""))
        verb.formatter_class = argparse.RawDescriptionHelpFormatter
        verb.set_defaults(main=command.main)
        command.add(verb)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
