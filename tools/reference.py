"""The site's reference: lines ``::: module [name ...]`` of a page become what the docstrings say.

A hook of mkdocs (``tools/mkdocs.yml``). Names are Fluid's own, as a script spells them; without names a line stands
for all that the module itself defines.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

_LINE = re.compile(r"^::: ([\w.]+)((?: \w+)*)$", re.MULTILINE)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples):[ ]*(.*)$")
_ENTRY = re.compile(r"^ {4}(\S.*?): (.*)$")
_TITLES = {"Args": "Arguments"}
_ROOTS = {"fluid": "fluidjax", "paddle": "fluidjax.paddle"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs's event: the page with its lines replaced."""
    return _LINE.sub(lambda line: "\n".join(_entries(line[1], line[2].split())), markdown)


def names(markdown: str) -> set[str]:
    """All that a page describes, by full names, those in 'Also' included."""
    return {
        f"{line[1]}.{name}"
        for line in _LINE.finditer(markdown)
        for group in _groups(line[1], line[2].split())
        for name in group
    }


def _entries(module: str, chosen: list[str]) -> Iterator[str]:
    for first, *others in _groups(module, chosen):
        yield from entry(f"{module}.{first}", getattr(_module(module), first), [f"{module}.{name}" for name in others])


def _module(name: str) -> Any:
    root, *parts = name.split(".")
    value = importlib.import_module(_ROOTS[root])
    for part in parts:
        value = getattr(value, part)
    return value


def _groups(name: str, chosen: list[str]) -> list[list[str]]:
    """The names for each object, the shortest first."""
    module = _module(name)
    groups: dict[int, list[str]] = {}
    for each in chosen or [n for n in dir(module) if not n.startswith("_") and _defines(module, getattr(module, n))]:
        groups.setdefault(id(getattr(module, each)), []).append(each)
    return sorted((sorted(group, key=lambda n: (len(n), n)) for group in groups.values()), key=lambda g: g[0].lower())


def _defines(module: Any, value: Any) -> bool:
    where = str(getattr(value, "__module__", None))
    return callable(value) and (where + ".").startswith(module.__name__ + ".") and bool(value.__doc__)


def entry(name: str, value: Any, others: list[str]) -> Iterator[str]:
    """Markdown of a function or class: heading, signature, docstring, and the methods of a class."""
    yield f"## {name} {{ #{name} }}\n"
    if others:
        yield f"Also {', '.join(f'`{other}`' for other in others)}.\n"
    yield from _described(name, value)
    if inspect.isclass(value):
        for method, function in vars(value).items():
            if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                yield f"### {method} {{ #{name}.{method} }}\n"
                yield from _described(method, function)


def _described(name: str, value: Any) -> Iterator[str]:
    yield f"```python\n{signature(name, value)}\n```\n"
    yield from text(inspect.getdoc(value) or "")


def signature(name: str, value: Any) -> str:
    """The call, without types; a line for each argument where it is long."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return name
    shown = [str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters if p.name != "self"]
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + ")"


def text(docstring: str) -> Iterator[str]:
    """A docstring in Google's style as Markdown."""
    section, lines = "", list[str]()
    for line in [*docstring.split("\n"), "End:"]:
        found = _SECTION.match(line)
        if not found and line != "End:":
            lines.append(line)
            continue
        yield from _section(section, lines)
        section, lines = (found[1], [f"    {found[2]}"] if found[2] else []) if found else ("", [])


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if title == "Examples":
        yield "\n".join(["```pycon", *(line[4:] for line in lines), "```"]).replace("\n\n```", "\n```") + "\n"
    elif title:
        yield f"**{_TITLES.get(title, title)}**\n"
        yield from ("\n".join(_item(line) for line in lines), "")
    else:
        yield from (escaped("\n".join(lines)), "")


def _item(line: str) -> str:
    entry = _ENTRY.match(line)
    return f"- `{entry[1]}`: {escaped(entry[2])}" if entry else escaped(line.strip() if line.strip() else line)


def escaped(words: str) -> str:
    """Words whose stars, underscores and brackets mean themselves; what stands between backticks is code already."""
    parts = re.split(r"(`+[^`]+`+)", words)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts)
