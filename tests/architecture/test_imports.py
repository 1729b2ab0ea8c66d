"""The house as its imports show it: which room may import which, no circles, few imports inside functions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("lowering", "fluidjax")

# A room imports what stands above it in this list, its own row, and itself; the longest name that fits counts. What is
# not named stands below all.
STOREYS = (
    ("lowering",),
    ("fluidjax.proto", "fluidjax.backend_check", "fluidjax.base", "fluidjax.unique_name"),
    ("fluidjax.framework", "fluidjax.wrapped_decorator"),
    # What layers are written with, and what brings data into their programs.
    ("fluidjax.layer_helper", "fluidjax.layer_helper_base", "fluidjax.writing", "fluidjax.param_attr",
     "fluidjax.initializer", "fluidjax.regularizer", "fluidjax.clip", "fluidjax.error_clip", "fluidjax.data",
     "fluidjax.data_feeder",
     "fluidjax.dataloader", "fluidjax.dataset", "fluidjax.reader", "fluidjax.readers", "fluidjax.paddle.batch",
     "fluidjax.paddle.reader", "fluidjax.paddle.distributed.fs_wrapper",
     "fluidjax.files.errors", "fluidjax.files.trust", "fluidjax.command.aliases",
     "fluidjax.legacy.later", "fluidjax.legacy.package_names"),
    ("fluidjax.layers", "fluidjax.backward", "fluidjax.input", "fluidjax.nets"),
    ("fluidjax.optimizer",),
    ("fluidjax.execution", "fluidjax.files"),
    ("fluidjax.eager",),
    ("fluidjax.executor", "fluidjax.compiler", "fluidjax.io", "fluidjax.passes",
     "fluidjax.debugger", "fluidjax.drawing"),
    ("fluidjax.dygraph", "fluidjax.to_static", "fluidjax.inference", "fluidjax.export", "fluidjax.ir",
     "fluidjax.distributed"),
    ("fluidjax.transpiler", "fluidjax.contrib.mixed_precision"),
    ("fluidjax.communicator", "fluidjax.incubate"),
)  # fmt: skip
# Inside a room of the list, but not of its storey: it stands below all.
APART = ("fluidjax.execution.single",)
# Imports from below, each for its reason.
DOORS = {
    ("fluidjax.layers._nn.python_function", "fluidjax.execution.python_functions"): (
        "py_func hands its function to where runs find it; the program only holds a number"
    ),
    ("fluidjax.optimizer.eager", "fluidjax.eager.variables.varbase"): "one optimizer updates variables of both modes",
}
# Imports inside functions, each for its reason: (file, module) -> reason.
LATE = {
    ("fluidjax/passes.py", "fluidjax.debugger"): "imports all that draws, for one pass",
    ("fluidjax/execution/native.py", "fluidjax.execution.trainer"): "needs messages that few scripts use",
    (
        "fluidjax/compiler.py",
        "fluidjax.execution.devices.several",
    ): "runs on several devices, which few scripts ask for",
    (
        "fluidjax/executor.py",
        "fluidjax.execution.devices.pipeline",
    ): "runs what PipelineOptimizer has cut; few scripts do",
    ("fluidjax/dataset.py", "fluidjax.readers.multi_slot_dataset"): "needs messages that few scripts use",
    ("fluidjax/execution/devices/coordinator.py", "jaxlib"): "is for the process that it starts, not for its own",
    ("lowering/extend.py", "jax.extend.mlir.ir"): "imports all of Pallas, a tenth of what importing fluidjax takes",
}


def modules() -> dict[str, Path]:
    """All modules by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def _resolved(name: str, path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    kept = parts[: len(parts) - node.level + (path.name == "__init__.py")]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _imports(name: str, path: Path, nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _resolved(name, path, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in MODULES else base


def _at_top(body: list[ast.stmt], *, types: bool) -> Iterator[ast.AST]:
    """Statements that run at import, and if ``types`` is set those that only type checkers read."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)) and (types or "TYPE_CHECKING" not in ast.unparse(node).split("\n")[0]):
            yield from _at_top(node.body, types=types)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module as Python parses it; only who runs these tests waits for that, and once."""
    return ast.parse(path.read_text())


@functools.cache
def graph(*, types: bool = False) -> dict[str, set[str]]:
    """Module -> the modules of this project that importing it imports, and if ``types`` is set names as types."""
    found = {}
    for name, path in MODULES.items():
        top = _at_top(parsed(path).body, types=types)
        found[name] = {i for i in _imports(name, path, top) if i in MODULES and i != name}
    return found


def _is_in(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def storey(name: str) -> int:
    """The storey a module stands on; everything that is not named stands below the last."""
    if any(_is_in(name, room) for room in APART):
        return len(STOREYS)
    fitting = [(len(room), level) for level, rooms in enumerate(STOREYS) for room in rooms if _is_in(name, room)]
    return max(fitting, default=(0, len(STOREYS)))[1]


def test_imports_go_one_way() -> None:
    wrong = {
        (name, target)
        for name, targets in graph().items()
        for target in targets
        if target != "fluidjax" and storey(target) > storey(name)
    }
    assert wrong == set(DOORS)


# Folders whose folders are rooms: each room of one knows only rooms that do not know it.
DIVIDED = ("fluidjax.execution", "fluidjax.eager", "lowering", "lowering.engine", "lowering.ops")


@pytest.mark.parametrize("folder", DIVIDED)
def test_rooms_of_a_folder_go_one_way(folder: str) -> None:
    rooms = {name.removeprefix(folder + ".").partition(".")[0] for name in MODULES if _is_in(name, folder)}
    rooms = {room for room in rooms if (ROOT / folder.replace(".", "/") / room).is_dir()}
    known = {
        room: {other for other in rooms - {room} if _knows(f"{folder}.{room}", f"{folder}.{other}")} for room in rooms
    }
    while ground := {room for room, others in known.items() if not others}:
        known = {room: others - ground for room, others in known.items() if room not in ground}
    assert known == {}, "these rooms import each other in a circle"


def _knows(room: str, other: str) -> bool:
    return any(_is_in(target, other) for name, targets in graph().items() if _is_in(name, room) for target in targets)


def test_layers_know_nothing_of_eager_mode() -> None:
    """Not even by way of what they import."""
    seen = {name for name in graph() if storey(name) < storey("fluidjax.optimizer")} - {"fluidjax"}
    pending = [n for n in seen if not _is_in(n, "lowering")]
    while pending:
        found = graph()[pending.pop()] - seen - {"fluidjax"}
        seen |= found
        pending += found
    assert not [n for n in seen if _is_in(n, "fluidjax.eager") or _is_in(n, "fluidjax.dygraph")]


def _circles(targets_of: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected modules, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in targets_of[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in targets_of:
        if name not in index:
            visit(name)
    return found


def test_there_are_no_circles() -> None:
    assert _circles(graph()) == []


def test_only_fluids_own_classes_know_each_other_as_types() -> None:
    """A Variable has a Block, a Block a Program, and these make the others."""
    (circle,) = _circles(graph(types=True))
    assert {name.rpartition(".")[0] for name in circle} == {"fluidjax.framework"}


def _late() -> list[tuple[str, str]]:
    found = []
    for name, path in MODULES.items():
        for function in ast.walk(parsed(path)):
            if isinstance(function, ast.FunctionDef):
                found += [(str(path.relative_to(ROOT)), i) for i in _imports(name, path, ast.walk(function))]
    return found


def test_imports_inside_functions_have_a_reason() -> None:
    assert len(LATE) <= 10
    assert sorted(set(_late())) == sorted(LATE)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_says_what_it_holds(package: str) -> None:
    packages = [path for name, path in MODULES.items() if path.name == "__init__.py" and name.startswith(package)]
    assert [str(p.relative_to(ROOT)) for p in packages if not ast.get_docstring(parsed(p))] == []
