"""Block: a list of ops and their variables; a view of a BlockDesc message."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import VarType
from fluidjax.base.mode import current_tracer
from fluidjax.base.older import hidden
from fluidjax.base.tracebacks import shorten
from fluidjax.framework import descs
from fluidjax.framework.infer import infer_outputs, raw_op
from fluidjax.framework.operator import Operator
from fluidjax.framework.parameter import Parameter
from fluidjax.framework.text import indent, message_text
from fluidjax.framework.variable import Variable
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.framework.program import Program


# Each is called with a program when a layer has added an op to it; notebooks look for cells that are run again.
OP_ADDED: list[Callable[[Program], None]] = []


class Block:
    """A block of a program; created by the program.

    Attributes:
        program: the program it belongs to.
        vars: its variables by name.
        ops: its ops in order.
    """

    __slots__ = ("__dict__", "__weakref__", "_view", "_writers", "proto")  # as in Program

    def __init__(self, program: Program, idx: int) -> None:
        self.program = program
        self.vars: OrderedDict[str, Variable] = OrderedDict()
        self.ops: list[Operator] = []
        self.proto: pb.BlockDesc = program.proto.blocks[idx]
        self._writers: dict[str, int] | None = None
        self._view: Any = None

    # What it is.

    @property
    def desc(self) -> descs.BlockDescView:
        """Fluid's BlockDesc."""
        return descs.BlockDescView(self.proto, self.program.proto, self.program._descs_changed)

    @property
    def idx(self) -> int:
        """The index of the block in its program."""
        return self.proto.idx

    @property
    def parent_idx(self) -> int:
        """The index of the parent block; -1 if there is none."""
        return self.proto.parent_idx

    @property
    def forward_block_idx(self) -> int:
        """For a block of gradient ops, the index of the block it is the gradient of; else -1."""
        return self.proto.forward_block_idx

    def _set_forward_block_idx(self, idx: int) -> None:
        self.proto.forward_block_idx = idx
        self.program._bump()

    @property
    def backward_block_idx(self) -> int:
        """The index of the block with this block's gradient ops; -1 if there is none."""
        for block in self.program.blocks:
            if block.forward_block_idx == self.idx:
                return block.idx
        return -1

    def _op_changed(self) -> None:
        self._writers = None
        self.program._bump()

    # Variables.

    def var(self, name: str) -> Variable:
        """The block's own variable of that name. Raises ValueError if it does not exist."""
        if not isinstance(name, str):
            raise TypeError(
                f"var() expects a variable's name, a str, got {name!r} of type {type(name).__name__}. "
                "Pass variable.name."
            )
        found = self.vars.get(name)
        if found is None:
            known = ", ".join(list(self.vars)[:8]) + (" ..." if len(self.vars) > 8 else "")
            raise ValueError(
                f"var {name} not in this block: block {self.idx} has {known or 'no variables'}. Check the name, or "
                "look in the outer blocks too with _var_recursive."
            )
        return found

    def has_var(self, name: str) -> bool:
        """Whether the block itself has a variable of that name."""
        return name in self.vars

    def _find_var_recursive(self, name: str) -> Variable | None:
        """The variable of that name here, in an enclosing block, or in the block this is the gradient of; or None."""
        own = self.vars.get(name)
        if own is not None:
            return own
        pending, seen = [self.parent_idx, self.forward_block_idx], {self.idx}
        while pending:
            idx = pending.pop(0)
            if idx < 0 or idx in seen:
                continue
            seen.add(idx)
            block = self.program.blocks[idx]
            if name in block.vars:
                return block.vars[name]
            pending += [block.parent_idx, block.forward_block_idx]
        return None

    def _var_recursive(self, name: str) -> Variable:
        found = self._find_var_recursive(name)
        if found is None:
            raise ValueError(
                f"Var {name} is not found: neither block {self.idx} nor a block around it has it. Create it first, or "
                "check the name."
            )
        return found

    def iter_parameters(self) -> Iterator[Parameter]:
        """The block's parameters."""
        return (var for var in self.vars.values() if isinstance(var, Parameter))

    def all_parameters(self) -> list[Parameter]:
        """The block's parameters, as a list."""
        return list(self.iter_parameters())

    def create_var(self, *args: Any, **kwargs: Any) -> Variable:
        """Create a variable; arguments as for Variable, without the block. In eager mode, an eager variable."""
        tracer = current_tracer()
        if tracer is not None:
            return tracer.create_var(*args, **kwargs)
        var = Variable(self, *args, **kwargs)
        initializer = kwargs.get("initializer")
        if initializer is not None:
            initializer(var, self)
        return var

    def create_parameter(self, *args: Any, **kwargs: Any) -> Parameter:
        """Create a parameter in the global block; arguments as for Parameter, without the block.

        With ``initializer``, the op that initialises it is appended to this block, once per name. In eager mode, an
        eager parameter is created and initialised immediately.
        """
        tracer = current_tracer()
        if tracer is not None:
            return tracer.create_parameter(*args, **kwargs)
        global_block = self.program.global_block()
        settings = {key: value for key, value in kwargs.items() if key != "initializer"}
        param = Parameter(global_block, *args, **settings)
        initializer = kwargs.get("initializer")
        if initializer is not None:
            self._initialize(param, initializer, global_block)
        param.stop_gradient = False
        return param

    def _initialize(self, param: Parameter, initializer: Callable, global_block: Block) -> None:
        count = global_block._writer_count(param.name)
        if count > 1:
            writers = [op.type for op in global_block.ops if param.name in op.output_arg_names]
            raise RuntimeError(
                f"param {param.name} is inited by multiple init ops {writers}. Expected one. Give parameters that are "
                "not shared different names."
            )
        if not count:
            initializer(param, self)

    def _writer_count(self, name: str) -> int:
        """The number of ops in the block that write the variable."""
        if self._writers is None:
            self._writers = {}
            for op in self.ops:
                self._note_writes(op)
        return self._writers.get(name, 0)

    def _note_writes(self, op: Operator) -> None:
        if self._writers is not None:
            for name in op.output_arg_names:
                self._writers[name] = self._writers.get(name, 0) + 1

    def _clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """A variable like `var` in this block."""
        settings: dict[str, Any] = {"name": var.name, "type": var.type, "is_data": var.is_data}
        settings["persistable"] = True if force_persistable else var.persistable
        if var.type == VarType.STEP_SCOPES:
            return self.create_var(name=var.name, persistable=var.persistable, type=var.type)
        if var.type == VarType.RAW:
            return self.create_var(name=var.name, persistable=var.persistable, type=var.type)
        settings |= {"shape": var.shape, "dtype": var.dtype, "need_check_feed": var.proto.need_check_feed}
        if var.type != VarType.SELECTED_ROWS:
            settings["lod_level"] = var.lod_level
        return self.create_var(**settings)

    def _rename_var(self, name: str, new_name: str) -> Variable:
        """Rename a variable here and in the block's ops."""
        var = self.var(name)
        if self.has_var(new_name):
            raise ValueError(
                f"cannot rename {name} to {new_name}: block {self.idx} has such a variable. Choose a name that is free."
            )
        var.proto.name = new_name
        self.vars = OrderedDict((key if key != name else new_name, value) for key, value in self.vars.items())
        for op in self.ops:
            if op._mentions(name):
                op._rename_input(name, new_name)
                op._rename_output(name, new_name)
        self._op_changed()
        return var

    def _remove_var(self, name: str) -> None:
        """Remove a variable; its ops are kept."""
        self.var(name)
        del self.vars[name]
        self.desc._remove_var(name)
        self.program._bump()

    # Ops.

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Append an op: ``append_op(type, inputs, outputs, attrs)``, checking it and inferring its outputs.

        See Operator for arguments and errors. In eager mode, the op runs immediately instead.
        """
        tracer = current_tracer()
        if tracer is not None:
            return tracer.trace_op(*args, **kwargs)
        proto = self.proto.ops.add(type="")
        try:
            op = self._build(proto, args, kwargs)
        except BaseException as error:
            del self.proto.ops[-1]
            shorten(error)
            raise
        self.ops.append(op)
        self._note_writes(op)
        self.program._bump()
        for observe in OP_ADDED:
            observe(self.program)
        return op

    def _build(self, proto: pb.OpDesc, args: tuple, kwargs: dict[str, Any]) -> Operator:
        names = ("type", "inputs", "outputs", "attrs")
        settings = dict(zip(names, args, strict=False))
        settings.update({name: kwargs[name] for name in names if name in kwargs})
        op = Operator(self, proto, **settings)
        if op._has_kernel(op.type):
            infer_outputs(op)
        return op

    def _insert_op(self, index: int, *args: Any, **kwargs: Any) -> Operator:
        """Insert an op before position `index`; arguments as for ``append_op``."""
        if len(self.ops) != len(self.proto.ops):
            self._sync_with_cpp()
        self.proto.ops.insert(index, pb.OpDesc(type=""))
        try:
            op = self._build(self.proto.ops[index], args, kwargs)
        except BaseException:
            del self.proto.ops[index]
            raise
        self.ops.insert(index, op)
        self._note_writes(op)
        self.program._bump()
        return op

    def _prepend_op(self, *args: Any, **kwargs: Any) -> Operator:
        tracer = current_tracer()
        if tracer is not None:
            return tracer.trace_op(*args, **kwargs)
        return self._insert_op(0, *args, **kwargs)

    def _remove_op(self, index: int) -> None:
        """Remove the op at position `index`."""
        del self.proto.ops[index]
        del self.ops[index]
        self._op_changed()

    def _slice_ops(self, start: int, end: int) -> list[Operator]:
        return self.ops[start:end]

    def _append_op_desc(
        self,
        type: str,
        inputs: dict[str, list[str]],
        outputs: dict[str, list[str]],
        attrs: dict[str, Any] | None = None,
        like: Operator | None = None,
        index: int | None = None,
    ) -> Operator:
        """Append an op verbatim: without checks, defaults, inference or call stack.

        Used by the backward pass to write gradient ops. `like` supplies the types of attributes with the same names;
        `index` inserts at a position instead.
        """
        message = raw_op(type, inputs, outputs, attrs or {}, like)
        if index is None:
            self.proto.ops.append(message)
            op = Operator(self, self.proto.ops[-1])
            self.ops.append(op)
            self._note_writes(op)
            self.program._bump()
            return op
        self.proto.ops.insert(index, message)
        op = Operator(self, self.proto.ops[index])
        self.ops.insert(index, op)
        self._op_changed()
        return op

    if not TYPE_CHECKING:  # which would take any name for one

        def __getattr__(self, name: str) -> Any:
            return hidden(self, "Block", name)

    # Keeping up with the message.

    def _sync_with_cpp(self) -> None:
        """Update the view after changes made to the message itself: new or removed variables and ops."""
        self.vars = self._declared()
        ops = self._written()
        if ops is not self.ops:
            self.ops = ops
            self._op_changed()

    def _declared(self) -> OrderedDict[str, Variable]:
        """The variables of the message, which desc objects may have changed; ``vars`` itself where they did not."""
        known = self.vars
        if list(known) == [v.name for v in self.proto.vars] and all(known[v.name].proto is v for v in self.proto.vars):
            return known
        mine = {id(var.proto): var for var in known.values()}
        return OrderedDict((v.name, mine.get(id(v)) or Variable._of(self, v)) for v in self.proto.vars)

    def _written(self) -> list[Operator]:
        """The ops of the message, which desc objects may have changed; ``ops`` itself where they did not."""
        if len(self.ops) == len(self.proto.ops) and all(
            op.proto is proto for op, proto in zip(self.ops, self.proto.ops, strict=True)
        ):
            return self.ops
        mine = {id(op.proto): op for op in self.ops}
        return [mine.get(id(proto)) or Operator(self, proto) for proto in self.proto.ops]

    def _copy_param_info_from(self, other: Block) -> None:
        """Turn variables that are parameters in `other` into parameters, with the same attributes."""
        for param in other.iter_parameters():
            if param.name in self.vars:
                self._as_parameter(self.vars[param.name])._copy_info_from(param)

    def _as_parameter(self, var: Variable) -> Parameter:
        if isinstance(var, Parameter):
            return var
        param = Parameter._of(self, var.proto)
        self.vars[var.name] = param
        return param

    def _copy_var_info_from(self, other: Block) -> None:
        """For variables of the same name, copy information that the message does not hold."""
        for name, var in other.vars.items():
            mine = self.vars.get(name)
            if mine is None:
                continue
            if isinstance(var, Parameter):
                mine = self._as_parameter(mine)
            if isinstance(mine, Parameter) and not isinstance(var, Parameter):
                Variable._copy_info_from(mine, var)
            else:
                mine._copy_info_from(var)

    # Text.

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """The message as text; `with_details` adds information held only by the front end."""
        if not with_details:
            return message_text(self.proto, throw_on_error)
        text = f"blocks {{\n  idx: {self.idx}\n  parent_idx: {self.parent_idx}"
        for var in self.vars.values():
            text += f"\n  vars {{\n{indent(var.to_string(throw_on_error, with_details), '    ')}  }}"
        for op in self.ops:
            text += f"\n  ops {{\n{indent(op.to_string(throw_on_error), '    ')}  }}"
        return text + "\n}"

    def __str__(self) -> str:
        return self.to_string(throw_on_error=True)

    __repr__ = __str__
