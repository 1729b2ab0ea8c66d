"""Several processes that train together: a step with collective ops is taken by all, over one device of each.

Each process computes, and may compile, its own step: batches may differ in size. Only the collective ops, which all
processes must reach in the same order, bring them together.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.distributed import global_state
from jax._src.xla_bridge import backends_are_initialized
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax

from fluidjax.base.errors import explain
from fluidjax.base.flags import flag
from fluidjax.execution.devices import coordinator
from fluidjax.execution.steps.form import form
from fluidjax.execution.steps.spreading import Spreading, Step, on_each_device
from lowering.engine.host import provide
from lowering.engine.x64 import in_x64
from lowering.mesh import AXIS
from lowering.program import ProgramView

_ROWS = PartitionSpec(AXIS)
# Ops that wait for the same op of the other processes.
_MEETINGS = frozenset(
    "allreduce broadcast c_allgather c_allreduce_max c_allreduce_min c_allreduce_prod c_allreduce_sum c_broadcast"
    " c_concat c_reducescatter c_split mp_allreduce_sum sum_over_devices".split()
)
# Seconds without a sign of life after which a process is given up.
_HEARTBEAT = 10
_joined: Processes | None = None


class Processes(Spreading):
    """The processes of a job that this one has joined.

    Args:
        endpoints: their addresses, in the order of their ranks.
        rank: this one's number.
    """

    def __init__(self, endpoints: Sequence[str], rank: int):
        self.endpoints = tuple(endpoints)
        self.rank = rank
        self._exchanges: dict[Any, Any] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.endpoints)

    @cached_property
    def _rows(self) -> NamedSharding:
        first = {d.process_index: d for d in reversed(jax.devices())}
        return NamedSharding(Mesh(np.array([first[i] for i in range(self.count)]), (AXIS,)), _ROWS)

    def over(
        self, step: Step, replaced: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], *, donate: bool
    ) -> Step:
        """See ``Spreading``: overflows and faults of one process are those of all."""
        return on_each_device(step, donate=donate)

    def jitted(
        self, run: Callable[..., Any], replaced: Sequence[str], inputs: Sequence[str], donated: tuple[int, ...]
    ) -> _Jitted:
        """See ``Spreading``."""
        return _Jitted(run, donated, self._rows)

    def sums(self, arrays: Sequence[Any]) -> list[Any]:
        """The sum of each array over all processes."""
        return self._exchanged(_sums, arrays)

    def firsts(self, arrays: Sequence[Any]) -> list[Any]:
        """Each array as process 0 has it."""
        return self._exchanged(_firsts, arrays)

    @in_x64
    def _exchanged(self, run: Callable[..., Any], arrays: Sequence[Any]) -> list[Any]:
        key = run, form(arrays)
        if key not in self._exchanges:
            self._exchanges[key] = _Jitted(run, (), self._rows).trace(*arrays).lower().compile()
        return list(jax.block_until_ready(self._exchanges[key](*arrays)))


def _sums(*parts: Any) -> list[Any]:
    return [jax.lax.psum(p, AXIS) for p in parts]


def _firsts(*parts: Any) -> list[Any]:
    return [jax.lax.all_gather(p, AXIS)[0] for p in parts]


class _Jitted:
    """A function of this process's values, jitted to run with the other processes'; like what ``jax.jit`` gives."""

    def __init__(self, run: Callable[..., Any], donated: tuple[int, ...], rows: NamedSharding):
        self._run = run
        self._donated = donated
        self._rows = rows

    def trace(self, *arguments: Any) -> _Traced:
        """Trace for arguments of such forms."""
        leaves, tree = jax.tree_util.tree_flatten(arguments)
        scalars = [np.ndim(leaf) == 0 for leaf in leaves]
        made: list[Any] = []

        def on_each(*parts: Any) -> list[Any]:
            own = [p.reshape(()) if s else p for p, s in zip(parts, scalars, strict=True)]
            results, structure = jax.tree_util.tree_flatten(self._run(*jax.tree_util.tree_unflatten(tree, own)))
            made[:] = structure, [np.ndim(r) == 0 for r in results]
            return [jnp.atleast_1d(r) for r in results]

        over = jax.shard_map(on_each, mesh=self._rows.mesh, in_specs=_ROWS, out_specs=_ROWS, check_vma=False)
        counts = [len(jax.tree_util.tree_leaves(a)) for a in arguments]
        donated = [sum(counts[:i]) + k for i in self._donated for k in range(counts[i])]
        jitted = jax.jit(over, donate_argnums=tuple(donated))
        return _Traced(jitted.trace(*(self._form(leaf) for leaf in leaves)), self._rows, made)

    def _form(self, leaf: Any) -> jax.ShapeDtypeStruct:
        shape = _whole(np.shape(leaf), self._rows)
        return jax.ShapeDtypeStruct(shape, getattr(leaf, "dtype", None) or np.result_type(leaf), sharding=self._rows)


def _whole(shape: tuple[int, ...], rows: NamedSharding) -> tuple[int, ...]:
    """The shape of all processes' values joined along the first axis, if they all had this one's shape."""
    first, *others = shape or (1,)
    return (first * rows.mesh.size, *others)


class _Traced:
    """A traced function of this process's values; like ``jax.stages.Traced``."""

    def __init__(self, traced: Any, rows: NamedSharding, made: Sequence[Any]):
        self._traced = traced
        self._rows = rows
        self._made = made

    @property
    def jaxpr(self) -> Any:
        """What was traced."""
        return self._traced.jaxpr

    def lower(self) -> _Lowered:
        """The function for XLA."""
        return _Lowered(self._traced.lower(), self._rows, self._made)


class _Lowered:
    """A function of this process's values for XLA; like ``jax.stages.Lowered``."""

    def __init__(self, lowered: jax.stages.Lowered, rows: NamedSharding, made: Sequence[Any]):
        self._lowered = lowered
        self._rows = rows
        self._made = made

    def compiler_ir(self) -> Any:
        """The module that XLA is given."""
        return self._lowered.compiler_ir()

    def compile(self, compiler_options: dict[str, Any] | None = None) -> _Compiled:
        """The function compiled."""
        return _Compiled(self._lowered.compile(compiler_options), self._rows, *self._made)


class _Compiled:
    """A compiled function of this process's values; like ``jax.stages.Compiled``."""

    def __init__(self, compiled: Any, rows: NamedSharding, structure: Any, scalars: Sequence[bool]):
        self._compiled = compiled
        self._rows = rows
        self._structure = structure
        self._scalars = scalars
        self.memory_analysis = compiled.memory_analysis

    def __call__(self, *arguments: Any) -> Any:
        parts = [self._given(leaf) for leaf in jax.tree_util.tree_leaves(arguments)]
        left = [array.addressable_data(0) for array in self._compiled(*parts)]
        left = [a.reshape(()) if s else a for a, s in zip(left, self._scalars, strict=True)]
        return jax.tree_util.tree_unflatten(self._structure, left)

    def _given(self, leaf: Any) -> Any:
        shape = np.shape(leaf)
        part = leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf)
        part = part if shape else part.reshape(1)
        return jax.make_array_from_single_device_arrays(_whole(shape, self._rows), self._rows, [part])


def processes() -> Processes | None:
    """The processes that this one has joined; None while it is alone."""
    return _joined


def meeting(program: ProgramView) -> Processes | None:
    """The processes that a program's ops meet; None where it has no such ops, or this process is alone."""
    if _joined is None or not any(op.type in _MEETINGS for block in program.blocks for op in block.ops):
        return None
    return _joined


def join(endpoints: Sequence[str], rank: int) -> Processes | None:
    """Join the job of these processes, and wait for the others; None if there is only one process.

    The first endpoint is where they find each other. Each other process accepts connections at its own meanwhile: the
    first one may be waiting for that (``wait_server_ready``). No other address is bound, unless FLAGS_rpc_bind names a
    host.

    Raises RuntimeError where this process has joined another job, or has computed before.
    """
    global _joined
    if _joined is not None:
        if (_joined.endpoints, _joined.rank) != (tuple(endpoints), rank):
            raise RuntimeError(_refusal(f"process {_joined.rank} of {', '.join(_joined.endpoints)}", endpoints, rank))
        return _joined
    if len(endpoints) < 2:
        return None
    if backends_are_initialized():
        raise RuntimeError(_refusal("one that has computed", endpoints, rank))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        with _listening(_bound(endpoints[rank]) if rank else None):
            _connect(endpoints, rank)
    except RuntimeError as error:
        raise RuntimeError(_refusal(str(error), endpoints, rank)) from error
    _joined = Processes(endpoints, rank)
    with _output_as_errors():
        _joined.sums([np.zeros(1, np.float32)])  # gloo announces its connections where drivers read results
    return _joined


def _connect(endpoints: Sequence[str], rank: int) -> None:
    """What ``jax.distributed.initialize`` does, but for the coordinator: there it holds back the first one's exit."""
    held = None if rank else coordinator.start(_bound(endpoints[0]), len(endpoints), _HEARTBEAT)
    client = _jax.get_distributed_runtime_client(
        endpoints[0], rank, init_timeout=300, use_compression=True, heartbeat_timeout=_HEARTBEAT
    )
    client.connect()
    if held is not None:
        atexit.register(coordinator.leave, held)
    global_state.coordinator_address = endpoints[0]
    global_state.process_id, global_state.num_processes, global_state.client = rank, len(endpoints), client


@contextlib.contextmanager
def _output_as_errors() -> Iterator[None]:
    """Within it, what is written to descriptor 1 goes to descriptor 2."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _bound(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    return f"{flag('FLAGS_rpc_bind') or host}:{port}"


def _refusal(found: str, endpoints: Sequence[str], rank: int) -> str:
    return explain(
        f"cannot become process {rank} of the job of {', '.join(endpoints)}",
        "a process that joins once, before it computes",
        found,
        "run the startup program (or fleet.init, dygraph.prepare_context) before all else, once in each process",
    )


class _listening:  # noqa: N801  (used as a function)
    """Within it, connections to an endpoint are accepted; what comes over them is not read."""

    def __init__(self, endpoint: str | None):
        self._endpoint = endpoint
        self._server: socket.socket | None = None

    def __enter__(self) -> None:
        if self._endpoint is not None:
            host, port = self._endpoint.rsplit(":", 1)
            self._server = socket.create_server((host, int(port)))

    def __exit__(self, *error: Any) -> None:
        if self._server is not None:
            self._server.close()


def join_for(program: ProgramView) -> None:
    """Join the processes that a program's ops name, if they name any."""
    for op in program.blocks[0].ops:
        if op.type == "c_gen_nccl_id":
            others, rank = list(op.attrs["other_endpoints"]), int(op.attrs["rank"])
            join([*others[:rank], op.attrs["endpoint"], *others[rank:]], rank)
        elif op.type == "gen_nccl_id":
            join(list(op.attrs["trainers"]), int(op.attrs["trainer_id"]))


provide("group", lambda: np.zeros(1, np.int64))  # replaces the id of a group: there is only one
provide("members", lambda: 1 if _joined is None else _joined.count)
