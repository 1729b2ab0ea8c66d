"""``python -m tools.homes``: write ``lowering/ops/homes.py``, which says what file each op is in."""

from __future__ import annotations

from pathlib import Path
from pkgutil import walk_packages
from textwrap import wrap

from lowering import ops
from lowering.ops.homes import HOMES
from lowering.registry import OpDef, table

PAGE = Path(ops.__file__).parent / "homes.py"
_HEAD = '''"""The file of each op. Written by ``python -m tools.homes``; not edited by hand."""

# A file, and ops that are in it.
_LINES = """
'''
_FOOT = '''"""

HOMES = {type: file for file, *types in map(str.split, _LINES.split("\\n")[1:-1]) for type in types}
'''


def found() -> dict[str, list[str]]:
    """The op types of each file of ``lowering.ops``, without what is derived for an order of differentiation."""
    files = [module.name for module in walk_packages(ops.__path__, f"{ops.__name__}.")]
    homes: dict[str, list[str]] = {}
    for type in table.registered_ops():
        definition = table.get_op(type)
        if definition.fn.__module__ in files and not _derived(definition):
            homes.setdefault(definition.fn.__module__.removeprefix(f"{ops.__name__}."), []).append(type)
    return homes


def _derived(definition: OpDef) -> bool:
    base = definition.forward
    return base is not None and base.forward is not None and not base.has_written_gradient


def page(homes: dict[str, list[str]]) -> str:
    """The text of the file."""
    lines = (f"{file} {part}\n" for file, types in sorted(homes.items()) for part in wrap(" ".join(types), 80))
    return _HEAD + "".join(lines) + _FOOT


if __name__ == "__main__":
    HOMES.clear()  # the page may name files that were moved
    PAGE.write_text(page(found()))
