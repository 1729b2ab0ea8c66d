"""What ``minimize`` appends to recorded networks, to main and startup program, against what Paddle's appended."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import fluidjax as fluid
import lowering
from fluidjax import clip, framework, optimizer, regularizer, unique_name
from fluidjax.proto.framework_pb2 import ProgramDesc
from tests.backward.strip import LOSS_GRADIENT, Op, first_difference, loss_name, program_of, read_op, role
from tests.golden.recordings import folder

Make = Callable[[Any], optimizer.Optimizer]
L1, L2 = regularizer.L1Decay, regularizer.L2Decay

# Network -> its optimizer, from a learning rate that is a float or the schedule's Variable.
OPTIMIZERS: dict[str, Make] = {
    "book_fit_a_line": lambda lr: optimizer.SGD(learning_rate=lr),
    "book_recognize_digits_softmax": lambda lr: optimizer.Adam(learning_rate=lr),
    "book_understand_sentiment_conv": lambda lr: optimizer.Adagrad(learning_rate=lr),
    "book_word2vec_dense": lambda lr: optimizer.Adagrad(lr, regularization=L2(8e-4)),
    "book_word2vec_sparse": lambda lr: optimizer.Adagrad(lr, regularization=L2(8e-4)),
    "clip_value": lambda lr: optimizer.SGD(lr, grad_clip=clip.GradientClipByValue(0.02, -0.01)),
    "lr_cosine": lambda lr: optimizer.Momentum(lr, 0.9),
    "opt_adadelta_dense": lambda lr: optimizer.Adadelta(lr, epsilon=1e-4, rho=0.9),
    "opt_adagrad_sparse": lambda lr: optimizer.Adagrad(lr, initial_accumulator_value=0.1),
    "opt_adam_sparse": lambda lr: optimizer.Adam(lr),
    "opt_decayed_adagrad_dense": lambda lr: optimizer.DecayedAdagrad(lr, decay=0.9),
    "opt_ftrl_dense": lambda lr: optimizer.Ftrl(lr, l1=0.01, l2=0.01),
    "opt_lamb_sparse": lambda lr: optimizer.Lamb(lr),
    "opt_lars_dense": lambda lr: optimizer.LarsMomentum(lr, 0.9, lars_coeff=0.01, lars_weight_decay=0.001),
    "opt_momentum_dense": lambda lr: optimizer.Momentum(lr, 0.9),
    "opt_momentum_nesterov_dense": lambda lr: optimizer.Momentum(lr, 0.9, use_nesterov=True),
    "opt_momentum_nesterov_sparse": lambda lr: optimizer.Momentum(lr, 0.9, use_nesterov=True),
    "opt_momentum_sparse": lambda lr: optimizer.Momentum(lr, 0.9),
    "opt_rmsprop_dense": lambda lr: optimizer.RMSProp(lr, rho=0.9),
    "reg_l1": lambda lr: optimizer.Momentum(
        lr, 0.9, regularization=L1(0.05), grad_clip=clip.GradientClipByGlobalNorm(1.0)
    ),
}


def cases() -> list[str]:
    return [name for name in OPTIMIZERS if (folder() / "zoo" / name).exists()]


class Canon:
    """Temporary variables under the order of their first mention: their counters go on from the network's."""

    def __init__(self, known: Iterable[str]) -> None:
        self.names = {name: name for name in known}

    def name(self, name: str) -> str:
        if "@GRAD" in name:
            return name
        return self.names.setdefault(name, f"tmp#{len(self.names)}")

    def op(self, op: Op) -> Op:
        def slots(given: dict[str, list[str]]) -> dict[str, list[str]]:
            return {slot: [self.name(n) for n in names] for slot, names in given.items()}

        attrs = dict(op.attrs)
        attrs["op_namescope"] = re.sub(r"_\d+/", "/", attrs.get("op_namescope", ""))
        inputs, outputs = slots(op.inputs), slots(op.outputs)
        attrs["op_role_var"] = [self.name(n) for n in attrs.get("op_role_var", [])]
        return Op(op.type, inputs, outputs, attrs)


def ops_after_backward(desc: ProgramDesc, known: Iterable[str]) -> list[Op]:
    ops = list(desc.blocks[0].ops)
    start = next(i for i, op in enumerate(ops) if role(op) == LOSS_GRADIENT)
    canon = Canon(known)
    return [canon.op(read_op(op)) for op in ops[start:] if role(op) & 2 or op.type == "clip"]


def learning_rate(desc: ProgramDesc, startup: ProgramDesc, program: framework.Program) -> Any:
    """The schedule's Variable, or the value that the startup program gives the learning rate."""
    name = (
        next(
            slot.arguments[0]
            for op in reversed(desc.blocks[0].ops)
            for slot in op.inputs
            if slot.parameter == "LearningRate"
        )
        if any(s.parameter == "LearningRate" for op in desc.blocks[0].ops for s in op.inputs)
        else "learning_rate_0"
    )
    filled = {op.outputs[0].arguments[0]: op for op in startup.blocks[0].ops if op.type == "fill_constant"}
    if name not in filled:
        return program.global_block().var(name)
    return next(attr.f for attr in filled[name].attrs if attr.name == "value")


def forget_state(program: framework.Program) -> None:
    """Drop the variables that the optimizer made: those that no op of the forward part names."""
    block = program.global_block()
    used = {n for b in program.blocks for op in b.ops for n in (*op.input_arg_names, *op.output_arg_names)}
    for name in [n for n, v in block.vars.items() if n not in used and not isinstance(v, framework.Parameter)]:
        block._remove_var(name)


@pytest.mark.parametrize("name", cases())
def test_minimize(name: str) -> None:
    path = folder() / "zoo" / name
    desc = ProgramDesc.FromString(gzip.decompress((path / "main.bin.gz").read_bytes()))
    startup = ProgramDesc.FromString(gzip.decompress((path / "startup.bin.gz").read_bytes()))
    unknown = {op.type for op in desc.blocks[0].ops if not lowering.has_op(op.type)}
    if unknown:
        pytest.skip(f"ops not registered: {', '.join(sorted(unknown))}")
    program = program_of(desc, startup, json.loads((path / "meta.json").read_text()))
    forget_state(program)
    known = list(program.global_block().vars)
    ours = framework.Program()
    with unique_name.guard(), fluid.program_guard(program, ours):
        rate = learning_rate(desc, startup, program)
        OPTIMIZERS[name](rate).minimize(program.global_block().var(loss_name(desc)), startup_program=ours)
    state = [op.outputs[0].arguments[0] for op in ours.proto.blocks[0].ops]
    known += state
    expected, got = ops_after_backward(desc, known), ops_after_backward(program.proto, known)
    assert first_difference([expected], [got]) == ""
    made = [read_op(op) for op in startup.blocks[0].ops if op.outputs[0].arguments[0] in state]
    assert first_difference([made], [[read_op(op) for op in ours.proto.blocks[0].ops]]) == ""
