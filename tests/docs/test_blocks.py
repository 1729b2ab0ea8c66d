"""Every code block of the README and the documentation: Python runs, commands have the arguments they are given."""

from __future__ import annotations

import importlib.util
import re
import shlex
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from fluidjax.command import cli
from lowering.registry import table
from tests.docs.test_guide import DOCS, PAGES, TEXTS

ROOT = DOCS.parent
# Pages whose Python runs in a test of its own, here or beside.
OTHERS = {"README.md", "CONTRIBUTING.md", "docs/testing_ops.md", "docs/guide/modules.md", "docs/guide/serving.md"}


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks() -> list[Block]:
    """The blocks of all pages."""
    found = []
    for path in TEXTS:
        pieces = re.split(r"^```(.*)\n", path.read_text(), flags=re.MULTILINE)
        found += [Block(str(path.relative_to(ROOT)), pieces[at], pieces[at + 1]) for at in range(1, len(pieces), 4)]
    return found


COMMANDS = [
    (block.page, line.strip().removeprefix("$ "))
    for block in blocks()
    if not block.language
    for line in block.text.splitlines()
    if re.match(r"(\$ )?([A-Z_]+=\S+ )*(fluidjax|make|python -m|FLUIDJAX_GOLDEN=\S+ python -m) ", line)
]


def test_every_block_is_python_that_runs_or_commands():
    assert {block.language for block in blocks()} == {"", "python"}
    assert {block.page for block in blocks() if block.language} == {f"docs/{page}" for page in PAGES} | OTHERS
    assert len(COMMANDS) > 20


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: value[:40])
def test_a_command_is_there(page, line):
    words = [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    program, first, *rest = words
    if program == "fluidjax":
        cli._parse([first, *rest])
    elif program == "make":
        assert re.search(rf"^{first}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
    else:
        assert importlib.util.find_spec(rest[0]), line


def python(page: str) -> list[str]:
    """The Python of a page."""
    return [block.text for block in blocks() if block.page == page and block.language]


def test_the_op_of_the_contributors_page(monkeypatch):
    monkeypatch.setattr(
        table, "_REGISTRY", {n: table.get_op(n) for n in table.registered_ops() if "softshrink" not in n}
    )
    names: dict[str, Any] = {"op": lowering.op, "WISE": lowering.WISE, "jnp": jnp}
    (block,) = python("CONTRIBUTING.md")
    exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    x = jnp.array([-2.0, -0.25, 0.25, 2.0])
    np.testing.assert_allclose(lowering.get_op("softshrink").fn(x, lambda_=0.5), [-1.5, 0, 0, 1.5])
    np.testing.assert_allclose(lowering.get_op("softshrink_grad").fn(x, jnp.ones(4), lambda_=0.5), [1, 0, 0, 1])


def test_the_module_of_the_modules_page():
    def conv2d(x, w, *, padding):
        return jax.lax.conv_general_dilated(x, w, (1, 1), padding)

    names: dict[str, Any] = {"jnp": jnp, "conv2d": conv2d}
    (block,) = python("docs/guide/modules.md")
    exec(compile(block, "modules.md", "exec", dont_inherit=True), names)
    weights = {"conv2d_0.w_0": (1, 1, 5, 5), "fc_0.w_0": (784, 10), "fc_0.b_0": (10,)}
    found = names["predict"]({n: jnp.ones(s) for n, s in weights.items()}, jnp.ones((2, 1, 28, 28)))
    np.testing.assert_allclose(found, np.full((2, 10), 0.1), rtol=1e-6)
