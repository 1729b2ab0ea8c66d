"""The distribution of variables over servers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fluidjax.framework import Variable


@dataclass
class VarStruct:
    """The properties of a variable, independent of its program."""

    name: str
    shape: Any
    dtype: Any
    type: Any
    lod_level: int
    persistable: bool


def _struct(var: Variable | VarStruct) -> VarStruct:
    if isinstance(var, VarStruct):
        return var
    return VarStruct(var.name, var.shape, var.dtype, var.type, var.lod_level, var.persistable)


def _text(var: VarStruct) -> str:
    return f"{var.name} : fluid.{var.type}.shape{var.shape}.astype({var.dtype})"


class VarDistributed:
    """A variable, or a block of one, on one server.

    Attributes:
        origin, slice: the whole variable and its part, as VarStruct.
        is_slice: whether the part is less than the whole; by default, whether they differ.
        block_id: index of the part.
        offset: number of elements before it.
        vtype: ``Param``, ``Optimizer`` or ``RemotePrefetch``.
        endpoint: the server.
    """

    def __init__(
        self,
        origin_var: Variable | VarStruct,
        slice_var: Variable | VarStruct,
        is_slice: bool | None = None,
        block_id: int | None = None,
        offset: int | None = None,
        vtype: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        self.origin, self.slice = _struct(origin_var), _struct(slice_var)
        self.is_slice = not self.equal(self.origin, self.slice) if is_slice is None else is_slice
        self.block_id = block_id or 0
        self.offset = offset or 0
        self.vtype = vtype
        self.endpoint = endpoint

    @staticmethod
    def equal(var1: VarStruct, var2: VarStruct) -> bool:
        """Whether two variables agree in all properties."""
        return var1 == var2

    def __str__(self) -> str:
        part = f"{_text(self.slice)}.slice({self.is_slice}).block({self.block_id}).offset({self.offset})"
        whole = f"var owned: {self.vtype}, origin var: ( {_text(self.origin)} )"
        return f"{whole}, slice var: ( {part} ), endpoint: {self.endpoint} "


class VarsDistributed:
    """All variables held by servers: ``distributed_vars``."""

    def __init__(self) -> None:
        self.distributed_vars: list[VarDistributed] = []

    def add_distributed_var(
        self,
        origin_var: Variable | VarStruct,
        slice_var: Variable | VarStruct,
        is_slice: bool | None = None,
        block_id: int | None = None,
        offset: int | None = None,
        vtype: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """Add a VarDistributed of these."""
        self.distributed_vars.append(VarDistributed(origin_var, slice_var, is_slice, block_id, offset, vtype, endpoint))

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """The part with that name; None if there is none."""
        return next((var for var in self.distributed_vars if var.slice.name == var_name), None)

    @staticmethod
    def equal(var1: VarStruct, var2: VarStruct) -> bool:
        """Whether two variables agree in all properties."""
        return _struct(var1) == _struct(var2)

    def get_distributed_var_by_origin_and_ep(self, origin_var_name: str, endpoint: str) -> VarDistributed | None:
        """The part of a variable on a server; None if it holds none."""
        found = (v for v in self.distributed_vars if v.origin.name == origin_var_name and v.endpoint == endpoint)
        return next(found, None)

    def get_distributed_vars_by_vtypes(self, vtypes: Collection[str], groupby: bool = False) -> Any:
        """The parts of some vtypes as a list; with ``groupby``, as a dict of lists by variable name."""
        found = [var for var in self.distributed_vars if var.vtype in vtypes]
        if not groupby:
            return found
        groups: dict[str, list[VarDistributed]] = {}
        for var in found:
            groups.setdefault(var.origin.name, []).append(var)
        return groups

    def get_distributed_vars_by_ep(self, endpoint: str, vtype: str | None = None) -> list[VarDistributed]:
        """The parts on one server, optionally of one vtype only."""
        return [v for v in self.distributed_vars if v.endpoint == endpoint and (not vtype or v.vtype == vtype)]

    def overview(self) -> str:
        """All parts as text, one per line."""
        return "\n".join(map(str, self.distributed_vars))
