"""Union-find."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any


class UnionFind:
    """Disjoint sets of elements, initially singletons."""

    def __init__(self, elementes: Iterable[Hashable] | None = None) -> None:
        self._index = {element: index for index, element in enumerate(elementes or ())}
        self._parents = list(range(len(self._index)))

    def find(self, x: Any) -> int:
        """The number of the set that contains x; -1 if x is not an element."""
        if x not in self._index:
            return -1
        root = self._index[x]
        while root != self._parents[root]:
            self._parents[root] = root = self._parents[self._parents[root]]
        return root

    def union(self, x: Any, y: Any) -> None:
        """Merge the sets of two elements."""
        self._parents[self.find(x)] = self.find(y)

    def is_connected(self, x: Any, y: Any) -> bool:
        """Whether two elements are in the same set."""
        return self.find(x) == self.find(y)
