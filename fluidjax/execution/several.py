"""Runs of a program on several devices: what each is fed, the program of all of them, what they fetch.

``lowering.engine.replicas`` writes the program out for all devices; it is run as any other. What devices have for
themselves between runs, such as running statistics, stands in a scope inside the one that is run over, and device 0's
in that one itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.execution.shares import Feed, merged, shares
from fluidjax.execution.state import gather_values
from fluidjax.execution.writer import make, write_back
from fluidjax.framework import Program, program_view
from lowering.engine.replicas import Devices, Replicated, replicate


class SeveralDevices:
    """How one program is run on several devices over one scope.

    Args:
        program: what is run.
        devices: how many there are, and what happens between them.
        scope: where the variables of device 0 are.
        local: where those of the others are; default a scope of its own.
    """

    def __init__(self, program: Program, devices: Devices, scope: Scope, local: Scope | None = None):
        self.scope = scope
        self.local = local if local is not None else scope.new_scope()
        self.devices = devices
        self._program = program
        self._replicated: dict[Any, Replicated] = {}
        self._known: tuple[Any, tuple[frozenset[str], bool]] | None = None

    def shares(self, feed: Any) -> list[Feed]:
        """What each device is fed; see ``shares.shares``. Programs without a backward pass may leave devices idle."""
        persistable, trains = self._facts()
        return shares(feed, self.devices.count, persistable, partial=not trains)

    def _facts(self) -> tuple[frozenset[str], bool]:
        """The program's persistable variables, and whether it has a backward pass."""
        token = self._program._version_token()
        if self._known is None or self._known[0] != token:
            view = program_view(self._program)
            held = frozenset(v.name for v in view.blocks[0].vars.values() if v.persistable)
            self._known = token, (held, any(op.is_backward for block in view.blocks for op in block.ops))
        return self._known[1]

    def replicated(self, parts: Sequence[Feed]) -> Replicated:
        """The program for as many devices as have something to do."""
        same = {n for n in self._facts()[0] & parts[0].keys() if all(p[n] is parts[0][n] for p in parts)}
        fed = frozenset(parts[0].keys() - same)
        key = self._program._version_token(), len(parts), fed
        found = self._replicated.get(key)
        if found is None:
            devices = replace(self.devices, count=len(parts))
            found = self._replicated[key] = replicate(program_view(self._program), devices, fed)
            self._share_out(found)
        return found

    def _share_out(self, replicated: Replicated) -> None:
        """Let each device have its own copy of what device 0 holds, unless it has one."""
        with self.scope._lock:
            state = replicated.state()
            values = gather_values(self.scope, state, exact=True)
            missing = {n: [c for c in copies if self.local.find_local_var(c) is None] for n, copies in state.items()}
            make(self.local, [c for copies in missing.values() for c in copies])
            write_back(self.local, {c: _copied(values[n]) for n in values for c in missing[n]})

    def feed(self, replicated: Replicated, parts: Sequence[Feed]) -> Feed:
        """What the program of all devices is fed."""
        found: Feed = {}
        for name in parts[0]:
            found.update(zip(replicated.names(name), (p[name] for p in parts), strict=True))
        return found

    def fetches(self, replicated: Replicated, names: Sequence[str]) -> tuple[str, ...]:
        """What the program of all devices fetches, each name once."""
        return tuple(dict.fromkeys(n for name in names for n in replicated.names(name)))

    def results(self, replicated: Replicated, names: Sequence[str], found: dict[str, Any], *, merge: bool) -> list[Any]:
        """Of each fetch the values of all devices, one after another or as a list."""
        values = [[found[n] for n in replicated.names(name)] for name in names]
        return [merged(v, name) for name, v in zip(names, values, strict=True)] if merge else values


def _copied(value: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: np.array(leaf, copy=True), value)
