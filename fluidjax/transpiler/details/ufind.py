"""Sets that are joined."""

from fluidjax.base.unbuilt import unbuilt

UnionFind = unbuilt(__name__, "UnionFind")
