# ruff: noqa: UP031, B018  (Python 3.7 reads this too; an expression on variables is a statement that writes ops)
"""Small programs that Paddle 1.8.5 and fluidjax build alike: each case writes to a main and a startup program.

The module runs under both (the old one on Python 3.7); `record.py` makes the recordings that the tests compare with.
"""

import numpy as np

CASES = {}


def case(function):
    """Register a case under the function's name."""
    CASES[function.__name__] = function
    return function


def data(main, name, shape, dtype="float32", stop_gradient=False):
    return main.global_block().create_var(
        name=name,
        shape=shape,
        dtype=dtype,
        lod_level=0,
        stop_gradient=stop_gradient,
        is_data=True,
        need_check_feed=True,
    )


@case
def initializers(fluid, main, startup):
    init = fluid.initializer
    block = startup.global_block()
    makers = [
        init.Constant(2.0),
        init.Constant(1.5, force_cpu=True),
        init.Uniform(),
        init.Uniform(-2, 3, 5, 2, 3, 0.5),
        init.Normal(1, 2, 3),
        init.TruncatedNormal(1.0, 2.0),
        init.Xavier(),
        init.Xavier(uniform=False, seed=4),
        init.Xavier(fan_in=3, fan_out=2),
        init.MSRA(),
        init.MSRA(uniform=False, fan_in=3),
    ]
    for dtype in ("float32", "float16", "float64"):
        for shape in ([4, 3], [5], [8, 4, 3, 3], [2, 3, 4]):
            for number, maker in enumerate(makers):
                name = "v_%s_%d_%d" % (dtype, len(shape), number)
                maker(block.create_var(name=name, shape=shape, dtype=dtype), block)
    for dtype in ("float32", "float16"):
        for size in (3, 4, 5):
            var = block.create_var(name="b_%s_%d" % (dtype, size), shape=[2, 1, size, size], dtype=dtype)
            init.Bilinear()(var, block)
        var = block.create_var(name="n_" + dtype, shape=[2, 3], dtype=dtype)
        init.NumpyArrayInitializer(np.arange(6).reshape(2, 3).astype("float32"))(var, block)
    var = block.create_var(name="n_int32", shape=[2, 3], dtype="int32")
    init.NumpyArrayInitializer(np.arange(6).reshape(2, 3).astype("int32"))(var, block)


@case
def operators(fluid, main, startup):
    x, y = data(main, "x", [-1, 4, 5]), data(main, "y", [-1, 4, 5])
    z, w, d = data(main, "z", [-1, 4, 5], "int64", True), data(main, "w", [3]), data(main, "d", [3], "float64")
    i, f = data(main, "i", [1], "int32"), data(main, "f", [2, 3])
    x + y, x - y, x * y, x / y, x**y, z // z, z % z
    x + 1, 1 + x, x - 2, 2 - x, x * 3, 3 * x, x / 4, 4 / x, x**2, 2**x
    z // 2, z % 2, z + 1, z - 1, z * 2, z / 2, z * 2.0, z / 2.0, z - 3, 1.0 - z, z**2
    z >= 1, x < y, x <= y, x > y, x >= y, x == y, x != y, x < 0.5, x > 1, z == 2
    -x, -z, x.astype("float64"), x.astype("int32"), x.astype(z.dtype), z.astype("int64")
    x + z, z + x, w + i, d + 1, 3 / f, f / 2.5, 2**f
    x + np.float32(2), x + np.array([2.0]), x > np.float64(1), x * np.int64(2), x + y * 2 - 1


@case
def indices(fluid, main, startup):
    x, u, i = data(main, "x", [-1, 4, 5]), data(main, "u", [3, 4]), data(main, "i", [1], "int32", True)
    x[0], x[-1], x[-2], x[0:2], x[:, 1], x[:, 1:3], x[0, 1], x[0, 1, 2], x[0:3:2], x[::-1], x[1:], x[:-1]
    u[i], u[i:2], u[0:i], u[i, 1], u[i, 0:2], u[0:2, i], u[i, i]
    u[0:10], u[-5:2], u[:, -1:], u[2:0:-1], u[2:0:-1, 1], x[:, :, 1]
    x[1:2, ::-1], u[::-1, 0:2], u[::-1, ::-1]


@case
def scopes(fluid, main, startup):
    x = data(main, "x", [-1, 4])
    with fluid.name_scope("a"):
        x + 1
        with fluid.name_scope("b"):
            x + 2
        with fluid.name_scope("b"):
            x + 3
    with fluid.name_scope("a"):
        x * 2
    with fluid.device_guard("cpu"):
        x * 3


@case
def weight_norms(fluid, main, startup):
    helper = fluid.layer_helper.LayerHelper("foo")
    for shape, dim in (([4, 3], 1), ([4, 3], 0), ([4, 3], None), ([6, 3, 3, 3], 1), ([6, 3, 3, 3], 0), ([6, 3, 5], 2)):
        helper.create_parameter(fluid.WeightNormParamAttr(dim=dim), shape, "float32")
        attr = fluid.WeightNormParamAttr(
            dim=dim, name="n%s%d" % (dim, len(shape)), initializer=fluid.initializer.MSRA(), learning_rate=0.5
        )
        helper.create_parameter(attr, shape, "float32")


@case
def layer_helper(fluid, main, startup):
    make, attr = fluid.layer_helper.LayerHelper, fluid.ParamAttr
    x, x3 = data(main, "x", [-1, 4]), data(main, "x3", [-1, 4, 5])
    helper = make("foo", input=x, act="relu", size=3, bias_attr=None, param_attr="shared")
    helper.create_variable_for_type_inference("float32")
    helper.create_variable_for_type_inference("float32", stop_gradient=True)
    helper.create_parameter(helper.param_attr, [2, 3], "float32")
    helper.create_parameter(attr(), [2, 3], "float32", is_bias=True)
    helper.create_parameter(attr(), [2, 3], "float64")
    helper.create_parameter(attr("shared"), [2, 3], "float32")
    var = helper.create_global_variable(persistable=True, dtype="float32", shape=[1])
    helper.create_or_get_global_variable("global", dtype="float32", shape=[1])
    helper.set_variable_initializer(var, fluid.initializer.Constant(3.0))
    helper.append_bias_op(x)
    helper.append_activation(x)
    make("foo", bias_attr=False).append_bias_op(x)
    make("foo", bias_attr=None).append_bias_op(x3, dim_start=1, dim_end=2)
    make("foo", bias_attr=None).append_bias_op(x3, dim_start=2)
    for act in (
        "relu",
        "sigmoid",
        "tanh",
        "leaky_relu",
        "softmax",
        "elu",
        "gelu",
        "exp",
        "square",
        "softplus",
        "swish",
    ):
        make("foo", act=act, use_cudnn=True).append_activation(x)


def pairs(fluid, main, sparse=False, regularizer=None):
    """Parameters with gradients, as an optimizer passes them on."""
    block = main.global_block()
    found = []
    for name, shape in (("b", [3]), ("emb", [10, 4]), ("w", [4, 3])):
        param = block.create_parameter(
            name=name, shape=shape, dtype="float32", regularizer=regularizer if name == "w" else None
        )
        is_rows = sparse and name == "emb"
        kind = fluid.core.VarDesc.VarType.SELECTED_ROWS if is_rows else fluid.core.VarDesc.VarType.LOD_TENSOR
        found.append((param, block.create_var(name=name + "@GRAD", shape=shape, dtype="float32", type=kind)))
    return found


def add_clips():
    makers = {
        "value": lambda c, need: c.GradientClipByValue(1.0, need_clip=need),
        "range": lambda c, need: c.GradientClipByValue(1.0, -0.5, need_clip=need),
        "norm": lambda c, need: c.GradientClipByNorm(2.0, need_clip=need),
        "global_norm": lambda c, need: c.GradientClipByGlobalNorm(2.0, need_clip=need),
    }
    for name, maker in makers.items():
        for kind, need in (("all", None), ("some", lambda param: param.name != "emb")):

            def clip(fluid, main, startup, maker=maker, need=need):
                clipped = maker(fluid.clip, need)(pairs(fluid, main, sparse=need is None))
                fluid.regularizer.append_regularization_ops(clipped, fluid.regularizer.L2Decay(0.1))

            CASES["clip_%s_%s" % (name, kind)] = clip

        def set_clip(fluid, main, startup, maker=maker):
            found = pairs(fluid, main)
            fluid.clip.set_gradient_clip(maker(fluid.clip, None), [param for param, _ in found], main)
            fluid.clip.append_gradient_clip_ops(found)

        CASES["set_clip_" + name] = set_clip


add_clips()


@case
def regularizers(fluid, main, startup):
    found = pairs(fluid, main, sparse=True, regularizer=fluid.regularizer.L2Decay(0.2))
    fluid.regularizer.append_regularization_ops(found, fluid.regularizer.L1Decay(0.1))
