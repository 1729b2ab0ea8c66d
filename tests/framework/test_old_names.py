"""Small names below fluid that whole packages of scripts import."""

import contextlib
import importlib
import inspect
import io
import sys

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.unbuilt import NotBuiltError
from fluidjax.incubate.data_generator import DataGenerator, MultiSlotDataGenerator, MultiSlotStringDataGenerator
from fluidjax.wrapped_decorator import signature_safe_contextmanager, wrap_decorator

# Module -> names, as Paddle 1.8.5 has them.
UNBUILT = {
    "incubate.fleet.base.role_maker": "MPIRoleMaker MPISymetricRoleMaker",
    "incubate.fleet.collective": "DistFCConfig",
    "incubate.fleet.parameter_server.pslib": "PSLib DownpourOptimizer fleet_embedding",
    "incubate.fleet.parameter_server.pslib.node": "Server Worker DownpourServer DownpourWorker",
    "incubate.fleet.parameter_server.pslib.optimizer_factory": "DistributedOptimizerImplBase DistributedAdam",
}


@pytest.mark.parametrize("module", UNBUILT)
def test_what_is_not_built_imports_and_says_so_when_used(module):
    place = importlib.import_module(f"fluidjax.{module}")
    for name in UNBUILT[module].split():
        with pytest.raises(NotBuiltError, match=rf"fluid\..*{name} is not built.*\n  expected.*\n  received.*\n  what"):
            getattr(place, name)(1, key=2)
        with pytest.raises(NotBuiltError, match=rf"{name}\.MODE is not built"):
            getattr(place, name).MODE  # noqa: B018


def test_what_to_do_instead():
    with pytest.raises(NotBuiltError, match="single machine"):
        fluid.incubate.fleet.collective.DistFCConfig()


@pytest.mark.parametrize(
    "module",
    ["parameter_server.pslib"],
)
def test_the_object_fleet(module):
    fleet = importlib.import_module(f"fluidjax.incubate.fleet.{module}").fleet
    with pytest.raises(NotBuiltError, match=rf"fluid\.incubate\.fleet\.{module}\.fleet\.init is not built"):
        fleet.init(None)
    assert not hasattr(fleet, "__wrapped__")


def test_scripts_that_go_on_without_a_library_of_servers_do_so_here():
    """As in Paddle's own tests, whose fleet starts MPI where there is one."""
    from fluidjax.incubate.fleet.parameter_server.pslib import DistributedAdam, fleet

    with contextlib.suppress(ImportError):
        fleet.init()
    with contextlib.suppress(AttributeError, ImportError):
        fleet.distributed_optimizer(fluid.optimizer.Adam(0.1))
    with pytest.raises(ImportError, match="MPIRoleMaker is not built"):
        fluid.incubate.fleet.base.role_maker.MPIRoleMaker()
    fleet._opt_info = None
    assert fleet._opt_info is None and inspect.isclass(DistributedAdam)


def test_a_script_may_derive_from_what_is_not_built():
    class Mine(fluid.incubate.fleet.collective.DistFCConfig):
        def __init__(self):
            super().__init__()

    assert inspect.isclass(Mine) and not isinstance(fluid.default_main_program(), Mine)
    with pytest.raises(NotBuiltError, match="DistFCConfig"):
        Mine()


def test_what_fluid_has_of_them():
    assert fluid.DistributeTranspiler is fluid.transpiler.DistributeTranspiler
    assert fluid.DistributeTranspilerConfig is fluid.transpiler.distribute_transpiler.DistributeTranspilerConfig
    assert fluid.transpiler.memory_optimize is fluid.memory_optimize
    assert fluid.fleet is fluid.incubate.fleet and fluid.data_generator is fluid.incubate.data_generator
    from fluidjax.incubate.fleet.base.fleet_base import Mode
    from fluidjax.incubate.fleet.base.role_maker import Role
    from fluidjax.incubate.fleet.parameter_server.version import is_transpiler

    assert (Mode.TRANSPILER, Mode.PSLIB, Mode.COLLECTIVE, Role.WORKER, Role.SERVER) == (1, 2, 3, 1, 2)
    assert is_transpiler()


def test_core_by_its_librarys_name():
    from fluidjax.core_avx import EOFException

    assert EOFException is fluid.core.EOFException and fluid.core_avx.VarDesc is fluid.core.VarDesc
    assert "LoDTensor" in dir(fluid.core_avx)
    with pytest.raises(AttributeError):
        fluid.core_avx.nothing  # noqa: B018


def test_the_messages_of_programs():
    from fluidjax.proto import framework_pb2

    assert fluid.proto.framework_pb2 is framework_pb2
    assert importlib.import_module("fluidjax.proto.framework_pb2") is framework_pb2
    message = framework_pb2.ProgramDesc.FromString(fluid.Program().desc.serialize_to_string())
    assert message == fluid.Program().proto


# --- wrapped_decorator ---------------------------------------------------------------------------------------------


@signature_safe_contextmanager
def around(a, b=2, *, c=3):
    """What it does."""
    yield a, b, c


def test_a_context_manager_keeps_its_signature():
    assert str(inspect.signature(around)) == "(a, b=2, *, c=3)"
    assert inspect.getfullargspec(around).args == ["a", "b"]
    assert (around.__name__, around.__doc__) == ("around", "What it does.")
    with around(1, c=5) as values:
        assert values == (1, 2, 5)
    with pytest.raises(KeyError), around(1):
        raise KeyError
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        around()


def test_a_decorator_of_functions_and_methods():
    twice = wrap_decorator(lambda function: lambda *args, **kwargs: 2 * function(*args, **kwargs))

    class Things:
        @twice
        def add(self, x, y=1):
            return x + y

    assert Things().add(3) == 8 and Things().add(3, y=2) == 10
    with pytest.raises(TypeError):
        Things().add()


# --- data_generator ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "samples, text, kinds",
    [
        ([[("a", [1, 2]), ("b", [3])]], "2 1 2 1 3\n", ["uint64", "uint64"]),
        ([[("a", [1.5])], [("a", [1])]], "1 1.5\n1 1\n", ["float"]),
        ([[("a", [1])], (("a", [1.5]),)], "1 1\n1 1.5\n", ["float"]),
        ([[("a", [1, 2.5])]], "2 1 2.5\n", ["float"]),
        ([[("a", [2**70, -3])]], f"2 {2**70} -3\n", ["uint64"]),
        ([[("a", [np.int64(3), np.float32(2)])]], "2 3 2.0\n", ["float"]),
        ([[]], "\n", []),
    ],
)
def test_samples_as_text(samples, text, kinds):
    generator = MultiSlotDataGenerator()
    assert "".join(map(generator._gen_str, samples)) == text
    assert [kind for _, kind in generator._proto_info] == kinds


@pytest.mark.parametrize(
    "samples, message",
    [
        (["abc"], "in list or tuple"),
        ([None], "in list or tuple"),
        ([[("a", (3.5,))]], "elements<class 'tuple'> must be in list"),
        ([[("a", [])]], "can not be empty"),
        ([[("a", [1])], [("a", [])]], "can not be empty"),
        ([[("a", ["x"])]], "must be in int or float"),
        ([[(3, [1])]], "name<class 'int'> must be in str"),
        ([[("a", [1]), ("b", [1])], [("a", [1])]], "inconsistent"),
        ([[("a", [1])], [("b", [1])]], "(?s)not match.*require<a>.*get<b>"),
    ],
)
def test_samples_that_are_none(samples, message):
    generator = MultiSlotDataGenerator()
    with pytest.raises(ValueError, match=message):
        for sample in samples:
            generator._gen_str(sample)


def test_samples_that_are_text():
    generator = MultiSlotStringDataGenerator()
    assert generator._gen_str([("words", ["1926", "08"]), ("label", ["1"])]) == "2 1926 08 1 1\n"
    assert generator._gen_str([("words", [])]) == "0\n"
    with pytest.raises(ValueError, match="in list or tuple"):
        generator._gen_str({"a": [1]})


class Numbers(MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            if line is None:
                yield from ([("n", [i])] for i in range(5))
            elif line.strip() == "skip":
                yield None
            else:
                yield [("n", [int(word) for word in line.split()])]

        return samples

    def generate_batch(self, samples):
        self.sizes = [*getattr(self, "sizes", []), len(samples)]
        return super().generate_batch(samples)


def test_lines_in_and_text_out(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 2\nskip\n3\n4\n5 6\n7\n"))
    generator = Numbers()
    generator.set_batch(2)
    generator.run_from_stdin()
    assert capsys.readouterr().out == "2 1 2\n1 3\n1 4\n2 5 6\n1 7\n" and generator.sizes == [2, 2, 1]
    generator.run_from_memory()
    assert capsys.readouterr().out == "".join(f"1 {i}\n" for i in range(5))


def test_what_a_generator_needs():
    generator = DataGenerator()
    assert generator.batch_size_ == 32 and list(generator.generate_batch([1, 2])()) == [1, 2]
    for use in (lambda: generator.generate_sample("x"), generator.run_from_memory, lambda: generator._gen_str([])):
        with pytest.raises(NotImplementedError):
            use()
    for limit in ("x", 0):
        with pytest.raises(ValueError, match="line_limit"):
            generator._set_line_limit(limit)


# --- executor, framework, descs, compiler --------------------------------------------------------------------------


def test_values_and_variables_by_name():
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        weight = fluid.layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(4.0))
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        value = fluid.executor._fetch_var(weight.name)
        assert float(value) == 4.0
        value[:] = 7
        tensor = fluid.executor._fetch_var(weight.name, fluid.global_scope(), return_numpy=False)
        assert tensor is fluid.global_scope().find_var(weight.name).get_tensor() and np.array(tensor) == 4.0
        assert fluid.framework._get_var(weight.name) is weight
        for wrong in (lambda: fluid.executor._fetch_var("none"), lambda: fluid.executor._fetch_var(weight)):
            with pytest.raises(AssertionError):
                wrong()
        for wrong in (lambda: fluid.framework._get_var(3), lambda: fluid.framework._get_var("x", 3)):
            with pytest.raises(AssertionError, match="expected a name and a Program"):
                wrong()
        with pytest.raises(ValueError, match="none not in this block"):
            fluid.framework._get_var("none", fluid.Program())


def test_inference_on_descs():
    block = fluid.Program().global_block()
    block.create_var(name="ids", shape=[-1, 3], dtype="int64", lod_level=1)
    out = block.create_var(name="out")
    op = block.desc.append_op()
    op.set_type("cast")
    op.set_input("X", ["ids"])
    op.set_output("Out", ["out"])
    op._set_attr("in_dtype", int(fluid.core.VarDesc.VarType.INT64))
    op._set_attr("out_dtype", int(fluid.core.VarDesc.VarType.FP64))
    op.infer_var_type(block.desc)
    assert out.dtype == fluid.core.VarDesc.VarType.FP64 and tuple(out.shape) == ()
    op.infer_shape(block.desc)
    assert (tuple(out.shape), out.lod_level) == ((-1, 3), 1)


def test_where_a_compiled_program_runs():
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        value = fluid.layers.fill_constant([1], "float32", 2.0)
        exe, program = fluid.Executor(fluid.CPUPlace()), fluid.default_main_program()
        plain = fluid.CompiledProgram(program)
        assert plain._places is None
        exe.run(plain, fetch_list=[value])
        assert plain._places == [exe.place]
        everywhere = fluid.CompiledProgram(program).with_data_parallel(loss_name=value.name)
        exe.run(everywhere, fetch_list=[value])
        assert len(everywhere._places) == len(fluid.cpu_places())
        one = fluid.CompiledProgram(program).with_data_parallel(loss_name=value.name, places=fluid.CPUPlace())
        assert len(one._places) == 1
        with pytest.raises(AssertionError, match="No places for execution"):
            exe.run(fluid.CompiledProgram(program).with_data_parallel(places=[]), fetch_list=[value])
