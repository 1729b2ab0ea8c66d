"""A net, its weights and batches, for the tests of quantization; drawn as they were for Paddle."""

from __future__ import annotations

import re

import numpy as np

import fluidjax as fluid
from fluidjax.framework import IrGraph

core, layers, CPU = fluid.core, fluid.layers, fluid.CPUPlace()


def network(image, label):
    """Convolutions, two of them of one input, batch normalisation, products with and without weights, one skipped."""
    hidden = fluid.nets.simple_img_conv_pool(image, 4, 5, 2, 2, act="relu")
    hidden = layers.batch_norm(hidden)
    hidden = layers.conv2d(hidden, 4, 3, groups=4, bias_attr=False, use_cudnn=False)
    wide, narrow = layers.conv2d(hidden, 4, 3, padding=1), layers.conv2d(hidden, 4, 1)
    hidden = layers.pool2d(layers.elementwise_add(wide, narrow, act="relu"), 2, "avg", 2)
    hidden = layers.fc(hidden, 8, act="relu")
    with fluid.name_scope("skip_quant"):
        out = layers.fc(hidden, 10, act="softmax")
    product = layers.matmul(hidden, hidden, transpose_y=True)
    return out, layers.elementwise_add(layers.mean(layers.cross_entropy(out, label)), layers.mean(product))


def programs():
    """(trained, startup, tested, output, loss)."""
    main, startup, test = fluid.Program(), fluid.Program(), fluid.Program()
    for program, begin in ((main, startup), (test, fluid.Program())):
        with fluid.unique_name.guard(), fluid.program_guard(program, begin):
            out, loss = network(layers.data("image", [1, 14, 14]), layers.data("label", [1], dtype="int64"))
            if program is main:
                fluid.optimizer.Adam(0.001).minimize(loss)
    return main, startup, test.clone(for_test=True), out, loss


def initialized(main, startup):
    """A scope with all weights drawn."""
    scope, draw = fluid.Scope(), np.random.RandomState(3)
    with fluid.scope_guard(scope):
        fluid.Executor(CPU).run(startup)
    for var in sorted(main.list_vars(), key=lambda v: v.name):
        if var.persistable and re.fullmatch(r"[wb]_\d+", var.name.split(".")[-1]):
            value = draw.rand(*var.shape).astype("float32") - 0.5
            value = np.abs(value) + 0.5 if var.name == "batch_norm_0.w_2" else value
            scope.find_var(var.name).get_tensor().set(value, CPU)
    return scope


def batches():
    """Three batches."""
    draw = np.random.RandomState(5)
    return [
        {
            "image": draw.rand(4, 1, 14, 14).astype("float32"),
            "label": draw.randint(0, 10, (4, 1)).astype("int64"),
        }
        for _ in range(3)
    ]


def graph_of(program, for_test=False):
    """An IrGraph."""
    return IrGraph(core.Graph(program.desc), for_test)


def types(program):
    """The types of ops, without those of the network itself that nothing is done to."""
    return [op.type for op in program.global_block().ops]
