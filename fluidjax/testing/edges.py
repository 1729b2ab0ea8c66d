"""The edge cases in the corpus: ``python -m fluidjax.testing.edges`` prints them op by op.

Edge cases are recognised by the case itself (its inputs and attributes), not by its label.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

import lowering
from fluidjax.testing.case import Case
from fluidjax.testing.table import table

SIZE_0, SIZE_1, NEGATIVE, BROADCAST = "size 0", "size 1", "negative axis", "broadcast"
INTEGERS, LIST_OF_ONE, EMPTY_LIST = "integers", "list of one", "empty list"
EDGES = (SIZE_0, SIZE_1, NEGATIVE, BROADCAST, INTEGERS, LIST_OF_ONE, EMPTY_LIST)
AXES = ("axis", "axes", "dim", "dims")


def _axes_of(attrs: dict[str, Any]) -> list[list[int]]:
    """The values of attributes that specify axes, each as a list."""
    found = [attrs[name] for name in AXES if name in attrs]
    return [list(v) if isinstance(v, (list, tuple)) else [v] for v in found]


def edges_of(case: Case) -> set[str]:
    """The edge cases represented by a case."""
    inputs = case.inputs(np.random.default_rng(0))
    lists = [v for v in inputs.values() if isinstance(v, list)]
    arrays = [a for v in inputs.values() for a in (v if isinstance(v, list) else [v]) if hasattr(a, "dtype")]
    attrs = lowering.check_attrs(case.op, dict(case.attrs))
    axes = _axes_of(attrs)
    first = arrays[0] if arrays else np.zeros(2)
    found = {
        SIZE_0: any(a.shape and 0 in a.shape for a in arrays),
        SIZE_1: np.prod(first.shape) == 1,
        NEGATIVE: any(a < 0 for values in axes for a in values) and np.ndim(first) > 0,
        BROADCAST: {"X", "Y"} <= set(inputs) and np.shape(inputs["X"]) != np.shape(inputs["Y"]),
        INTEGERS: np.issubdtype(first.dtype, np.integer),
        LIST_OF_ONE: any(len(v) == 1 for v in lists),
        EMPTY_LIST: [] in axes,
    }
    return {edge for edge, holds in found.items() if holds}


def coverage() -> dict[str, dict[str, list[str]]]:
    """Op -> edge -> names of the cases that are one."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case in table():
        found[case.op]  # an op without edge cases is listed too
        for edge in edges_of(case):
            found[case.op][edge].append(case.name)
    return found


def main() -> None:
    """Print one line for each op."""
    print(f"{'op':<40}" + "".join(f"{edge:>15}" for edge in EDGES))
    for op, edges in sorted(coverage().items()):
        print(f"{op:<40}" + "".join(f"{len(edges[edge]) or '-':>15}" for edge in EDGES))


if __name__ == "__main__":
    main()
