"""Program: blocks of ops and variables; a view of a ProgramDesc message."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import OpRole
from fluidjax.base.older import hidden
from fluidjax.base.version import full_version, version_number
from fluidjax.framework import descs, messages, names, scopes
from fluidjax.framework.block import Block
from fluidjax.framework.captures import Captures
from fluidjax.framework.check import check_structure, parse_message, warn_of_unknown_attributes
from fluidjax.framework.listing import program_text
from fluidjax.framework.parameter import Parameter
from fluidjax.framework.prune import for_inference, pruned, without_backward
from fluidjax.framework.text import message_text
from fluidjax.framework.variable import Variable
from fluidjax.proto import framework_pb2 as pb
from lowering.collection import uncollected

# The seed that new programs start with; ``Program.global_seed`` sets it.
global_prog_seed = 0

_ids = itertools.count()


class Program:
    """A model, or the program that initialises it: block 0 with its sub-blocks.

    Layers write to ``fluid.default_main_program()`` and ``fluid.default_startup_program()``; ``program_guard``
    selects other programs.

    Examples:
        >>> program = fluid.Program()
        >>> with fluid.program_guard(program):
        ...     y = fluid.layers.relu(fluid.data("x", [None, 3]))
        >>> program
        <Program: 1 ops, 2 variables, 1 blocks, fed x>
        >>> fluid.Program.parse_from_string(program.desc.serialize_to_string()).num_blocks
        1
    """

    # What is only ours is kept out of ``__dict__``, by which scripts compare programs.
    __slots__ = (
        *("__dict__", "__weakref__", "_id", "_mutations", "_raw_generation", "_view_cache", "_fingerprint_cache"),
        *("_loaded_from", "_allowed_host_ops", "_cells", "_captures", "_origin_blocks", "proto"),
    )

    def __init__(self) -> None:
        message = pb.ProgramDesc()
        message.blocks.add(idx=0, parent_idx=-1)
        message.version.version = version_number(full_version)
        self._init_state()
        self._attach(message)

    def _init_state(self) -> None:
        self._id = next(_ids)
        self._mutations = 0
        self._raw_generation = 0
        self._view_cache: Any = None
        # Where the program came from, if not from this process, and which of its host ops may run.
        self._loaded_from: str | None = None
        self._allowed_host_ops: frozenset[str] = frozenset()
        self._fingerprint_cache: tuple[Hashable, str] | None = None
        self._cells: dict[Any, int] = {}
        self._captures: Captures | None = None
        self._seed = global_prog_seed
        self._current_role = OpRole.Forward
        self._role_var: list[str] = []
        # Settings of distributed training, kept because scripts and optimizers look at them.
        self._is_distributed = False
        self._is_chief = False
        self._parameters_on_pservers: Any = None
        self._endpoints: list[str] = []
        self._ps_endpoint: str | None = None
        self._trainers_endpoints: list[str] = []
        self._distributed_lookup_table: str | None = None
        self._origin_program: Program | None = None
        self._origin_blocks: dict[int, int] = {}  # of a copy: its blocks -> those they are copies of
        self._enable_dgc = False
        self._use_lamb = False
        self._nccl_comm_num = 1
        self._use_hierarchical_allreduce = False
        self._hierarchical_allreduce_inter_nranks = 0
        self._fleet_opt: Any = None
        self._program_config: Any = None
        self._pipeline_opt: Any = None
        # How many times gradients were appended: gradients of gradients get names of their own.
        self._appending_grad_times = 0

    def _attach(self, message: pb.ProgramDesc) -> None:
        """Become the view of `message`."""
        self.proto: pb.ProgramDesc = message
        self.blocks: list[Block] = [Block(self, index) for index in range(len(message.blocks))]
        self.current_block_idx = 0
        for block in self.blocks:
            block._sync_with_cpp()
        self._bump()

    # Versions.

    def _bump(self) -> None:
        """Record a change."""
        self._mutations += 1

    def _descs_changed(self) -> None:
        """Record a change made through desc objects, which invalidates cached information about ops."""
        self._raw_generation += 1
        self._bump()

    def _version_token(self) -> Hashable:
        """A value that changes with every modification, unique among programs."""
        return self._id, self._mutations

    def fingerprint(self) -> str:
        """A hash of the content: equal for equal programs, regardless of the source lines of their ops."""
        token = self._version_token()
        if self._fingerprint_cache is None or self._fingerprint_cache[0] != token:
            bare = pb.ProgramDesc()
            bare.CopyFrom(self.proto)
            for block in bare.blocks:
                for op in block.ops:
                    attr = messages.find_attr(op, names.OP_CALLSTACK)
                    if attr is not None:
                        attr.ClearField("strings")
            digest = hashlib.sha256(bare.SerializePartialToString(deterministic=True)).hexdigest()
            self._fingerprint_cache = (token, digest)
        return self._fingerprint_cache[1]

    def _version(self) -> int:
        return self.desc._version()

    # Roles and scopes that new ops take on.

    @property
    def _op_role(self) -> OpRole:
        return self._current_role

    @_op_role.setter
    def _op_role(self, role: OpRole) -> None:
        self._current_role = role

    @property
    def op_role_var(self) -> list[str]:
        """The parameter and gradient names recorded by new ops."""
        return self._role_var

    @op_role_var.setter
    def op_role_var(self, var_names: Sequence[str]) -> None:
        self._role_var = list(var_names)

    @property
    def _op_role_var(self) -> list[str]:
        return self._role_var

    @_op_role_var.setter
    def _op_role_var(self, var_names: Sequence[str]) -> None:
        self._role_var = list(var_names)

    @contextlib.contextmanager
    def _role_guard(self, role: int, role_var: list[str] | None) -> Iterator[None]:
        before = self._current_role, self._role_var
        self._current_role = role  # type: ignore[assignment]
        if role_var is not None:
            self._role_var = role_var
        try:
            yield
        finally:
            self._current_role, self._role_var = before

    if not TYPE_CHECKING:  # which would take any name for one

        def __getattr__(self, name: str) -> Any:
            return hidden(self, "Program", name)

    def _backward_role_guard(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: ops created inside belong to the backward pass."""
        return self._role_guard(OpRole.Backward, None)

    def _optimized_guard(self, param_and_grads: Sequence[Any]) -> contextlib.AbstractContextManager[None]:
        """Context manager: ops created inside update the given parameter with the given gradient."""
        return self._role_guard(OpRole.Optimize, [v.name if isinstance(v, Variable) else v for v in param_and_grads])

    def _lr_schedule_guard(self, is_with_opt: bool = False) -> contextlib.AbstractContextManager[None]:
        """Context manager: ops created inside compute the learning rate."""
        role = OpRole.LRSched | OpRole.Optimize if is_with_opt else OpRole.LRSched
        return self._role_guard(int(role), [])

    def _name_scope_path(self) -> str:
        return scopes.full_name_scope()

    def _device(self) -> str:
        return scopes.current_device()

    # Blocks.

    @property
    def desc(self) -> descs.ProgramDescView:
        """Fluid's ProgramDesc."""
        return descs.ProgramDescView(self.proto, self._descs_changed)

    def _get_desc(self) -> descs.ProgramDescView:
        return self.desc

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def global_block(self) -> Block:
        """Block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Block `index`."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """The block to which layers are written."""
        return self.blocks[self.current_block_idx]

    def _create_block(self, parent_idx: int | None = None) -> Block:
        """Create a block inside the current one (or `parent_idx`) and make it current."""
        parent = self.current_block_idx if parent_idx is None else parent_idx
        self.proto.blocks.add(idx=len(self.blocks), parent_idx=parent)
        self.current_block_idx = len(self.blocks)
        self.blocks.append(Block(self, self.current_block_idx))
        self._bump()
        return self.current_block()

    def _rollback(self) -> None:
        """Return to the parent of the current block."""
        self.current_block_idx = self.current_block().parent_idx

    def _sync_with_cpp(self) -> None:
        """Update the view after changes made to the message itself."""
        for index in range(len(self.blocks), len(self.proto.blocks)):
            self.blocks.append(Block(self, index))
        for block in self.blocks:
            block._sync_with_cpp()
        self._descs_changed()

    # Variables.

    def list_vars(self) -> Iterator[Variable]:
        """All variables of all blocks."""
        for block in self.blocks:
            yield from list(block.vars.values())

    def all_parameters(self) -> list[Parameter]:
        """All parameters of all blocks."""
        return [param for block in self.blocks for param in block.all_parameters()]

    # Seeds.

    @property
    def random_seed(self) -> int:
        """The seed of the program's random ops; 0 for a different one in each run."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int):
            raise ValueError(f"Program.random_seed's input seed must be an integer, but received {type(seed)}.")
        self._seed = seed
        self._bump()

    def global_seed(self, seed: int = 0) -> None:
        """Set the seed of this program and of all programs created later."""
        global global_prog_seed
        global_prog_seed = seed
        self.random_seed = seed

    # Copies.

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self.clone()

    def clone(self, for_test: bool = False) -> Program:
        """A copy; since parameters keep their names, it shares their values in the Scope.

        With `for_test`, backward and optimizer ops are removed and every ``is_test`` attribute is set. Call it
        before ``minimize``, so that no training ops remain.
        """
        if for_test:
            return without_backward(self)._inference_optimize(prune_read_op=False)
        message = pb.ProgramDesc()
        message.CopyFrom(self.proto)
        copy = self._derived(message, dict(enumerate(range(self.num_blocks))))
        copy.current_block_idx = self.current_block_idx
        return copy

    @uncollected()
    def _derived(self, message: pb.ProgramDesc, origin: dict[int, int]) -> Program:
        """The program for a message derived from this one's; `origin` maps its blocks to blocks here."""
        program = type(self).__new__(type(self))
        program._init_state()
        program._seed = self._seed
        program._current_role = self._current_role
        program._role_var = list(self._role_var)
        program._appending_grad_times = self._appending_grad_times
        program._loaded_from = self._loaded_from
        program._allowed_host_ops = self._allowed_host_ops
        program._copy_dist_param_info_from(self)
        program._attach(message)
        program._origin_blocks = dict(origin)
        for index, source in origin.items():
            program.blocks[index]._copy_var_info_from(self.blocks[source])
        return program

    def _copy_dist_param_info_from(self, other: Program) -> None:
        """Copy the settings of distributed training."""
        _check_source(other, "_copy_dist_param_info_from")
        self._is_distributed = other._is_distributed
        self._is_chief = other._is_chief
        self._parameters_on_pservers = other._parameters_on_pservers
        self._endpoints = other._endpoints
        self._ps_endpoint = other._ps_endpoint
        self._distributed_lookup_table = other._distributed_lookup_table

    def _copy_param_info_from(self, other: Program) -> None:
        """Turn global variables that are parameters in `other` into parameters, with the same attributes."""
        _check_source(other, "_copy_param_info_from")
        self.global_block()._copy_param_info_from(other.global_block())

    def _copy_data_info_from(self, other: Program, pruned_origin_block_id_map: dict[int, int] | None = None) -> None:
        """Copy from `other` which variables are fed and which stop gradients."""
        _check_source(other, "_copy_data_info_from")
        origin = pruned_origin_block_id_map or {index: index for index in range(self.num_blocks)}
        for block in self.blocks:
            for name, var in other.blocks[origin[block.idx]].vars.items():
                if name in block.vars:
                    block.vars[name].is_data |= var.is_data
                    block.vars[name]._stop_gradient |= var.stop_gradient
        self._bump()

    def _prune(self, targets: Any) -> Program:
        """A copy with only the ops needed by the targets (Variables, names or Operators)."""
        return self._prune_with_input([], targets)

    def _prune_with_input(self, feeded_var_names: Sequence[str], targets: Any) -> Program:
        """A copy with only the ops needed by the targets, given that some variables are fed."""
        return pruned(self, feeded_var_names, targets)

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """A copy with every ``is_test`` set; with `prune_read_op`, without ops that read data."""
        return for_inference(self, prune_read_op)

    # Bytes and text.

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """The program serialised by ``desc.serialize_to_string()``.

        Information that the message does not hold (which variables are parameters, stop_gradient) is lost. Attributes
        unknown to an op are kept but ignored, with a warning.
        Raises ValueError if the bytes are not a program.
        """
        with uncollected():
            message = parse_message(binary_str)
            program = Program._construct_from_desc(message)
            warn_of_unknown_attributes(message)
            return program

    @staticmethod
    def _construct_from_desc(desc: Any) -> Program:
        """A program that takes ownership of a message or desc object; treated as if loaded from a file."""
        message = getattr(desc, "proto", desc)
        check_structure(message)
        program = Program.__new__(Program)
        program._init_state()
        program._loaded_from = "bytes"
        program._attach(message)
        return program

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """The message as text; `with_details` adds information held only by the front end.

        With `throw_on_error`, raises ValueError if a required field is missing; AssertionError for arguments that are
        not bool.
        """
        for name, value in (("throw_on_error", throw_on_error), ("with_details", with_details)):
            if not isinstance(value, bool):
                raise AssertionError(
                    f"The type of {name} parameter is wrong, expected bool, but received {type(value)}. "
                    "Pass True or False."
                )
        if with_details:
            return "".join(block.to_string(throw_on_error, True) for block in self.blocks)
        return message_text(self.proto, throw_on_error)

    def __str__(self) -> str:
        """A listing with one line per op; ``to_string`` returns the message as text."""
        return program_text(self)

    def __repr__(self) -> str:
        blocks = self.blocks
        ops = sum(len(block.ops) for block in blocks)
        data = [name for name, var in blocks[0].vars.items() if var.is_data]
        fed = f", fed {', '.join(data)}" if data else ""
        return f"<Program: {ops} ops, {len(blocks[0].vars)} variables, {len(blocks)} blocks{fed}>"


def _check_source(other: Any, function: str) -> None:
    if not isinstance(other, Program):
        raise TypeError(
            f"Function Program.{function}() needs to pass in a source Program, but received {type(other)}. Pass the"
            " program to take it over from"
        )
