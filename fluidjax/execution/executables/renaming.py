"""Names that were generated: two programs that differ only in the numbers of these compile to the same.

``unique_name`` counts on, so a net that a script builds again has a ``fc_3.w_0`` for its ``fc_0.w_0``. Records (see
``kept``) are found by names that are counted anew for each program, and hold a name's place instead of the name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from lowering.program import ProgramView

_NUMBER = re.compile(r"(?<=_)\d+")
_QUOTED = re.compile(r"'([^'\\]*_\d[^'\\]*)'")


class Renaming:
    """The generated names of a program: those with a number after an underscore.

    Args:
        program: the program.
    """

    def __init__(self, program: ProgramView):
        self._names = [name for name in dict.fromkeys(_names(program)) if _NUMBER.search(name)]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._counted = dict(zip(self._names, _counted(self._names), strict=True))

    def counted(self, text: str) -> str:
        """``text``, made by ``repr``, with each of the names in its strings as it is when counted anew.

        What is left of a name tells what it belongs to: the gradient of ``fc_3.w_0`` is still called so.
        """
        return _QUOTED.sub(self._requoted, text)

    def _requoted(self, found: re.Match[str]) -> str:
        """A string in which names are marked: it is unlike any that has none."""
        name = self._counted.get(found[1])
        if name is not None:
            return f"<<{name}>>"
        if self.parts(found[1]) is None:
            return found[0]
        return f"<{self._inside.sub(lambda name: f'<{self._counted[name[1]]}>', found[1])}>"

    def parts(self, text: str) -> tuple[str | int, ...] | None:
        """``text`` with the place of each of the names in it; None: it has none."""
        if text in self._places:
            return (self._places[text],)
        if not self._names or not _NUMBER.search(text):
            return None
        parts = self._inside.split(text)
        return tuple(self._places.get(part, part) for part in parts) if len(parts) > 1 else None

    def text(self, parts: tuple[str | int, ...]) -> str:
        """The text of ``parts`` that another program left, with the names of this one."""
        return "".join(self._names[part] if isinstance(part, int) else part for part in parts)

    @cached_property
    def _inside(self) -> re.Pattern[str]:
        """Finds the names in a text, the longest first."""
        longest = sorted(self._names, key=len, reverse=True)
        return re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, longest))})(?!\d)")


def _names(program: ProgramView) -> Iterator[str]:
    """The variables of a program, in an order that does not depend on their names."""
    for block in program.blocks:
        yield from block.vars
        for op in block.ops:
            for names in (*op.inputs.values(), *op.outputs.values()):
                yield from names


def _counted(names: Iterable[str]) -> Iterator[str]:
    """The names with each number replaced by how many others stood there, after the same beginning, before it."""
    counters: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def anew(number: re.Match[str]) -> str:
        known = counters[number.string[: number.start()]]
        return str(known.setdefault(number[0], len(known)))

    return (_NUMBER.sub(anew, name) for name in names)
