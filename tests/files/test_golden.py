"""The folders that Paddle 1.8.5 saved: ours are the same, byte for byte, and theirs load."""

import os
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fluidjax as fluid
from fluidjax import unique_name
from fluidjax.export import from_jax, to_jax
from fluidjax.files import pickles
from fluidjax.proto import framework_pb2 as pb
from tests.golden.recordings import folder
from tests.golden.zoocase import ZooCase

CASES = sorted(path.parent.name for path in (folder() / "zoo").glob("*/saved"))


@pytest.fixture(params=CASES)
def case(request):
    return ZooCase(folder() / "zoo" / request.param)


@pytest.fixture
def program(case):
    """The recorded training program, its parameters marked as such."""
    program = fluid.Program.parse_from_string(case.program("main"))
    block = program.global_block()
    for name, info in case.meta["vars"].items():
        if info["parameter"]:
            block._as_parameter(block.var(name))
    return program


@pytest.fixture
def final(case):
    """A scope with the values after training, and these values."""
    with np.load(case.path / "final.npz") as arrays:
        values = {name: arrays[name] for name in arrays.files}
    scope = fluid.Scope()
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    with fluid.scope_guard(scope):
        yield values


def files_of(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in Path(directory).rglob("*") if p.is_file()}


def saved(case, kind):
    return files_of(case.path / "saved" / kind)


def test_there_are_recordings():
    assert CASES


@pytest.mark.parametrize(
    "kind, save, filename",
    [
        ("persistables", fluid.io.save_persistables, None),
        ("persistables_combined", fluid.io.save_persistables, "all_persistables"),
        ("params", fluid.io.save_params, None),
    ],
)
def test_variables_are_written_as_paddle_writes_them(case, program, final, tmp_path, kind, save, filename):
    save(fluid.Executor(), str(tmp_path / "ours"), program, filename=filename)
    assert files_of(tmp_path / "ours") == saved(case, kind)


@pytest.mark.parametrize(
    "kind, load, filename",
    [
        ("persistables", fluid.io.load_persistables, None),
        ("persistables_combined", fluid.io.load_persistables, "all_persistables"),
        ("params", fluid.io.load_params, None),
    ],
)
def test_what_paddle_wrote_is_loaded(case, program, final, kind, load, filename):
    names = [
        v.name
        for v in program.list_vars()
        if (fluid.io.is_parameter if kind == "params" else fluid.io.is_persistable)(v)
    ]
    with fluid.scope_guard(fluid.Scope()):
        load(fluid.Executor(), str(case.path / "saved" / kind), program, filename=filename)
        for name in names:
            np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), final[name])


def in_order_of_making(program, parts):
    """List the variables as when the network was built; Paddle's own messages have them in any order."""
    block = program.global_block()
    names = [name for part in parts for name in part]
    block.vars = {name: block.vars[name] for name in dict.fromkeys([*names, *block.vars])}


def test_save_writes_the_same_three_files(case, program, final, tmp_path):
    theirs = saved(case, "fluid_save")
    in_order_of_making(program, [pickles.loads(theirs[f"model.{end}"], end) for end in ("pdparams", "pdopt")])
    fluid.save(program, str(tmp_path / "model"))
    ours = files_of(tmp_path)
    assert sorted(ours) == sorted(theirs)
    for name in theirs:
        assert ours[name] == theirs[name], name


def test_load_reads_the_three_files(case, program, final):
    with fluid.scope_guard(fluid.Scope()):
        fluid.load(program, str(case.path / "saved" / "fluid_save" / "model"))
        for name, value in final.items():
            np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), value)
    state = fluid.load_program_state(str(case.path / "saved" / "fluid_save" / "model"))
    assert sorted(state) == sorted(final)


def canonical(data):
    """A program as a message whose variables and attributes are in order, without lines of code."""
    message = pb.ProgramDesc.FromString(data)
    for block in message.blocks:
        ordered = sorted(block.vars, key=lambda var: var.name)
        del block.vars[:]
        block.vars.extend(ordered)
        for op in block.ops:
            attrs = sorted((a for a in op.attrs if a.name != "op_callstack"), key=lambda attr: attr.name)
            del op.attrs[:]
            op.attrs.extend(attrs)
    return message


def ends_of(data):
    """The feeds, and the variables whose copies are fetched, of a recorded inference model."""
    block = pb.ProgramDesc.FromString(data).blocks[0]
    feeds = [op.outputs[0].arguments[0] for op in reversed(block.ops) if op.type == "feed"]
    scales = [op for op in block.ops if op.outputs[0].arguments[0].startswith("save_infer_model/")]
    return feeds, [next(s.arguments[0] for s in op.inputs if s.parameter == "X") for op in scales]


def test_inference_models_are_equal_as_messages(case, program, final, tmp_path):
    theirs = saved(case, "inference")
    feeds, targets = ends_of(theirs["__model__"])
    variables = [program.global_block().var(name) for name in targets]
    before = program.proto.SerializePartialToString()
    with unique_name.guard():
        fluid.io.save_inference_model(str(tmp_path / "a"), feeds, variables, fluid.Executor(), program)
        fluid.io.save_inference_model(
            str(tmp_path / "b"), feeds, variables, fluid.Executor(), program, params_filename="__params__"
        )
    assert program.proto.SerializePartialToString() == before, "the user's program is left alone"
    for kind, ours in (("inference", files_of(tmp_path / "a")), ("inference_combined", files_of(tmp_path / "b"))):
        theirs = saved(case, kind)
        assert canonical(ours.pop("__model__")) == canonical(theirs.pop("__model__"))
        assert ours == theirs


def test_inference_models_predict_what_they_did(case):
    expected = case.file("saved_inference_outs")
    executor = fluid.Executor()
    for kind, params in (("inference", None), ("inference_combined", "__params__")):
        with fluid.scope_guard(fluid.Scope()):
            directory = str(case.path / "saved" / kind)
            program, feeds, fetches = fluid.io.load_inference_model(directory, executor, params_filename=params)
            for step in range(2):
                fed = {name: tensor_of(case.feeds(step)[name]) for name in feeds}
                (result,) = executor.run(program, feed=fed, fetch_list=fetches, return_numpy=False)
                # The fetch is named as in the first of the two models.
                want = expected[f"t{step}/save_infer_model/scale_0.tmp_0"]
                np.testing.assert_allclose(np.array(result), want, rtol=1e-5, atol=1e-7)


def tensor_of(value):
    tensor = fluid.LoDTensor()
    tensor.set(value.array, fluid.CPUPlace())
    tensor.set_lod(value.lod or [])
    return tensor


PYTHON = os.environ.get("FLUIDJAX_PADDLE_PYTHON")
LOADS = """
import sys
import numpy as np
import paddle.fluid as fluid
root = sys.argv[1]
exe = fluid.Executor(fluid.CPUPlace())
out = {}
with fluid.scope_guard(fluid.Scope()):
    program, feeds, fetches = fluid.io.load_inference_model(root + "/inference", exe)
    block = program.global_block()
    for var in program.list_vars():
        if fluid.io.is_persistable(var):
            out["inference/" + var.name] = np.array(fluid.global_scope().find_var(var.name).get_tensor())
main = fluid.Program.parse_from_string(open(root + "/model.pdmodel", "rb").read())
with fluid.scope_guard(fluid.Scope()):
    fluid.io.load_persistables(exe, root + "/persistables", main)
    for var in main.list_vars():
        if fluid.io.is_persistable(var):
            out["persistables/" + var.name] = np.array(fluid.global_scope().find_var(var.name).get_tensor())
for name, value in fluid.load_program_state(root + "/model").items():
    out["state/" + name] = value
np.savez(root + "/out.npz", **out)
"""


@pytest.mark.skipif(not PYTHON, reason="FLUIDJAX_PADDLE_PYTHON names no Python with paddlepaddle 1.8.5")
def test_paddle_loads_what_we_write(case, program, final, tmp_path):
    feeds, targets = ends_of(saved(case, "inference")["__model__"])
    variables = [program.global_block().var(name) for name in targets]
    executor = fluid.Executor()
    fluid.io.save_inference_model(str(tmp_path / "inference"), feeds, variables, executor, program)
    fluid.io.save_persistables(executor, str(tmp_path / "persistables"), program)
    fluid.save(program, str(tmp_path / "model"))
    subprocess.run(
        [PYTHON, "-c", LOADS, str(tmp_path)], check=True, capture_output=True, env={"PATH": os.environ["PATH"]}
    )
    with np.load(tmp_path / "out.npz") as loaded:
        assert {name.partition("/")[0] for name in loaded.files} == {"inference", "persistables", "state"}
        assert {n.partition("/")[2] for n in loaded.files if n.startswith("state/")} == set(final)
        for name in loaded.files:
            np.testing.assert_array_equal(loaded[name], final[name.partition("/")[2]])


def tuned_by_optax(folder, inputs, goal):
    """(a saved model's parameters after ten steps towards a first output, losses before and after)."""
    function, parameters = to_jax(folder)
    adam = optax.adam(0.01)

    def loss(parameters):
        return jnp.mean((function(parameters, inputs)[0] - goal) ** 2)

    @jax.jit
    def step(parameters, state):
        updates, state = adam.update(jax.grad(loss)(parameters), state)
        return optax.apply_updates(parameters, updates), state

    tuned, state = parameters, adam.init(parameters)
    for _ in range(10):
        tuned, state = step(tuned, state)
    return tuned, float(loss(parameters)), float(loss(tuned))


PREDICTS = """
import sys
import numpy as np
import paddle.fluid as fluid
root = sys.argv[1]
exe = fluid.Executor(fluid.CPUPlace())
program, feeds, fetches = fluid.io.load_inference_model(root + "/tuned", exe)
given = np.load(root + "/given.npz")
out, = exe.run(program, feed={name: given[name] for name in feeds}, fetch_list=fetches)
held = {v.name: np.array(fluid.global_scope().find_var(v.name).get_tensor())
        for v in program.list_vars() if fluid.io.is_persistable(v)}
np.savez(root + "/out.npz", out=out, **{"held/" + name: value for name, value in held.items()})
"""


def test_a_model_of_paddle_is_tuned_by_optax_and_goes_back(case, tmp_path):
    """What Paddle saved, trained in JAX: the program stays as it was, and Paddle computes with the new parameters."""
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        program, feeds, fetches = fluid.io.load_inference_model(str(case.path / "saved" / "inference"), exe)
        inputs = {name: case.feeds(0)[name].array for name in feeds}
        goal = np.roll(exe.run(program, feed=inputs, fetch_list=fetches)[0], 1, 0)
        tuned, before, after = tuned_by_optax(case.path / "saved" / "inference", inputs, goal)
        assert after < before
        from_jax(tuned)
        fluid.io.save_inference_model(str(tmp_path / "tuned"), feeds, fetches, exe, program)
        expected = exe.run(program, feed=inputs, fetch_list=fetches)[0]
    assert set(files_of(tmp_path / "tuned")) == set(saved(case, "inference"))
    if not PYTHON:
        return
    np.savez(tmp_path / "given.npz", **inputs)
    subprocess.run(
        [PYTHON, "-c", PREDICTS, str(tmp_path)], check=True, capture_output=True, env={"PATH": os.environ["PATH"]}
    )
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_allclose(found["out"], expected, rtol=1e-5, atol=1e-7)
        for name, value in tuned.items():
            np.testing.assert_array_equal(found[f"held/{name}"], value)
