"""Sets that are joined."""

from fluidjax.unbuilt import unbuilt

UnionFind = unbuilt(__name__, "UnionFind")
