"""fluid.io: round trips, and loads that fail: each says why and leaves the Scope as it was."""

import os
import shutil
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.files.errors import FileFormatError, MismatchError, UnsafeNameError
from fluidjax.files.scope_values import UninitializedVariableError
from fluidjax.proto import framework_pb2 as pb
from tests.files.conftest import VALUES, build, snapshot

EXE = fluid.Executor()


def three_parts(error):
    text = str(error.value)
    assert all(part in text for part in ("expected:", "received:", "what to do:")), text
    return text


def values_of(scope):
    return {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}


def same(found, names=VALUES):
    assert set(found) == set(names)
    for name in names:
        assert found[name].dtype == VALUES[name].dtype
        np.testing.assert_array_equal(found[name], VALUES[name])


# ---- round trips ----


@pytest.mark.parametrize("filename", [None, "all"])
def test_persistables(program, scope, tmp_path, filename):
    fluid.io.save_persistables(EXE, str(tmp_path), program, filename=filename)
    assert sorted(os.listdir(tmp_path)) == (["all"] if filename else sorted(VALUES))
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(EXE, str(tmp_path), program, filename=filename)
        same(values_of(fluid.global_scope()))


def test_params_and_vars(program, scope, tmp_path):
    fluid.io.save_params(EXE, str(tmp_path / "params"), program)
    assert sorted(os.listdir(tmp_path / "params")) == ["b", "w"]
    fluid.io.save_vars(EXE, str(tmp_path / "some"), program, vars=[program.global_block().var("count")])
    fluid.io.save_vars(EXE, str(tmp_path / "some"), program, predicate=lambda var: var.name == "moment")
    assert sorted(os.listdir(tmp_path / "some")) == ["count", "moment"]
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_params(EXE, str(tmp_path / "params"), program)
        fluid.io.load_vars(EXE, str(tmp_path / "some"), program, predicate=fluid.io.is_belong_to_optimizer)
        same(values_of(fluid.global_scope()))


def test_a_file_of_the_name_of_a_temporary(rng, tmp_path):
    """A training program kept its loss `tmp_0`; another one has a `tmp_0` of its own, and loads whatever has a file."""
    kept, other = fluid.Program(), fluid.Program()
    kept.global_block().create_var(name="tmp_0", shape=[1], dtype="float32", persistable=True)
    for program in (kept, other):
        program.global_block().create_var(name="w", shape=[2], dtype="float32", persistable=True)
    with fluid.program_guard(other):
        temporary = other.global_block().create_var(name="tmp_0", shape=[-1, 4], dtype="float32")
        fluid.layers.fill_constant([3, 4], "float32", 2.0, out=temporary)
        out = fluid.layers.elementwise_mul(temporary, fluid.layers.reduce_sum(other.global_block().var("w")))
    w = rng.standard_normal(2).astype("float32")
    with fluid.scope_guard(fluid.Scope()):
        for name, value in {"tmp_0": np.ones(1, "float32"), "w": w}.items():
            fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
        fluid.io.save_persistables(EXE, str(tmp_path), kept)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_vars(EXE, str(tmp_path), other, predicate=lambda var: (tmp_path / var.name).exists())
        (found,) = EXE.run(other, fetch_list=[out])
    np.testing.assert_allclose(found, np.full([3, 4], 2 * w.sum()), rtol=1e-6)


def test_bytes_in_place_of_files(program, scope):
    data = fluid.io.save_persistables(EXE, None, program)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(EXE, None, program, filename=data)
        same(values_of(fluid.global_scope()))


def test_lod_and_selected_rows_are_kept(tmp_path):
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="ragged", shape=[-1, 1], dtype="float32", persistable=True, lod_level=1)
    block.create_var(
        name="sparse", shape=[9, 2], dtype="float32", persistable=True, type=fluid.core.VarDesc.VarType.SELECTED_ROWS
    )
    with fluid.scope_guard(fluid.Scope()):
        tensor = fluid.global_scope().var("ragged").get_tensor()
        tensor.set(np.ones((3, 1), "f4"), fluid.CPUPlace())
        tensor.set_lod([[0, 1, 3]])
        rows = fluid.global_scope().var("sparse").get_selected_rows()
        rows.set_rows([4, 0])
        rows.set_height(9)
        rows.get_tensor().set(np.full((2, 2), 2, "f4"), fluid.CPUPlace())
        fluid.io.save_persistables(EXE, str(tmp_path), program)
    with fluid.scope_guard(fluid.Scope()) as _:
        fluid.io.load_persistables(EXE, str(tmp_path), program)
        assert fluid.global_scope().find_var("ragged").get_tensor().lod() == [[0, 1, 3]]
        rows = fluid.global_scope().find_var("sparse").get_selected_rows()
        assert (rows.rows(), rows.height()) == ([4, 0], 9)
        np.testing.assert_array_equal(np.array(rows.get_tensor()), np.full((2, 2), 2, "f4"))


@pytest.mark.parametrize("ending", ["", ".pdparams", ".pdopt", ".pdmodel"])
def test_save_and_load(program, scope, tmp_path, ending):
    fluid.save(program, str(tmp_path / "model"))
    assert sorted(os.listdir(tmp_path)) == ["model.pdmodel", "model.pdopt", "model.pdparams"]
    with fluid.scope_guard(fluid.Scope()):
        fluid.load(program, str(tmp_path / "model") + ending)
        same(values_of(fluid.global_scope()))


def test_load_reads_what_save_persistables_wrote(program, scope, tmp_path):
    variables = fluid.io.get_program_persistable_vars(program)
    fluid.io.save_persistables(EXE, str(tmp_path / "many"), program)
    fluid.io.save_persistables(EXE, str(tmp_path), program, filename="one")
    for path, var_list in ((tmp_path / "many", None), (tmp_path / "one", variables)):
        with fluid.scope_guard(fluid.Scope()), pytest.warns(UserWarning, match="try to load model file saved with"):
            fluid.load(program, str(path), EXE, var_list)
            same(values_of(fluid.global_scope()))
        with pytest.warns(UserWarning, match="not found"):
            same(fluid.load_program_state(str(path), var_list))


@pytest.mark.filterwarnings("ignore:.*try to load model file saved with")
def test_lists_that_do_not_fit_one_file(program, scope, tmp_path):
    """With Fluid's classes: too many variables, variables of another program, and names."""
    variables = fluid.io.get_program_persistable_vars(program)
    fluid.io.save_persistables(EXE, str(tmp_path), program, filename="one")
    path, before = str(tmp_path / "one"), values_of(scope)
    with pytest.raises(RuntimeError) as error:
        fluid.load(program, path, EXE, [*variables, program.global_block().create_var(name="one more")])
    three_parts(error)
    with pytest.raises(RuntimeError):
        fluid.load_program_state(path, [*variables, *variables])
    with pytest.raises(LookupError, match="elsewhere") as error:
        fluid.load(program, path, EXE, [fluid.Program().global_block().create_var(name="elsewhere")])
    three_parts(error)
    with pytest.raises(TypeError, match="must be variable") as error:
        fluid.load_program_state(path, ["w"])
    three_parts(error)
    same(before)


@pytest.mark.filterwarnings("ignore:.*try to load model file saved with")
def test_a_list_says_what_is_loaded_from_a_folder(program, scope, tmp_path):
    """Fluid 1.8.5 loads all files of the folder there; the list is for a single file alone."""
    fluid.io.save_persistables(EXE, str(tmp_path), program)
    with fluid.scope_guard(fluid.Scope()) as _:
        fluid.load(program, str(tmp_path), EXE, [program.global_block().var("w")])
        assert fluid.global_scope().local_var_names() == ["w"]


def test_program_state(program, scope, tmp_path):
    fluid.save(program, str(tmp_path / "model"))
    state = fluid.load_program_state(str(tmp_path / "model"))
    same(state)
    state["w"] = state["w"] + 1
    del state["b"]
    with pytest.warns(UserWarning, match="Paramerter not found in program. There are: other"):
        fluid.set_program_state(program, {**state, "other": np.zeros(1)})
    np.testing.assert_array_equal(values_of(scope)["w"], VALUES["w"] + 1)
    np.testing.assert_array_equal(values_of(scope)["b"], VALUES["b"])


def test_parameters_by_name(program, scope):
    assert [var.name for var in fluid.io.get_program_parameter(program)] == ["w", "b"]
    assert {var.name for var in fluid.io.get_program_persistable_vars(program)} == set(VALUES)
    np.testing.assert_array_equal(fluid.io.get_parameter_value_by_name("w", EXE, program), VALUES["w"])
    with pytest.raises(AssertionError, match="not parameter"):
        fluid.io.get_parameter_value(program.global_block().var("x"), EXE)


@pytest.mark.parametrize("params", [None, "weights"])
def test_inference_model(program, scope, tmp_path, params, rng):
    target = program.global_block().var("out")
    names = fluid.io.save_inference_model(str(tmp_path), ["x"], [target], EXE, program, params_filename=params)
    assert sorted(os.listdir(tmp_path)) == sorted(["__model__", *([params] if params else ["b", "w"])])
    x = rng.standard_normal((4, 3)).astype("f4")
    with fluid.scope_guard(fluid.Scope()):
        loaded, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), EXE, params_filename=params)
        assert (feeds, [var.name for var in fetches]) == (["x"], names)
        (out,) = EXE.run(loaded, feed={"x": x}, fetch_list=fetches)
    np.testing.assert_allclose(out, x @ VALUES["w"] + VALUES["b"], rtol=1e-6)


def test_saving_a_model_that_counts_warns_in_1_8_5s_words(tmp_path):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        scores, labels = fluid.data("scores", [-1, 2]), fluid.data("labels", [-1, 1], "int64")
        hidden = fluid.layers.fc(scores, 2)
        fluid.layers.auc(scores, labels)
        EXE.run(startup)
        with pytest.warns(UserWarning, match="^please ensure that you have set the auc states to zeros") as told:
            fluid.io.save_inference_model(str(tmp_path), ["scores"], [hidden], EXE, main)
    assert len(told) == 1 and told[0].filename == __file__


def test_inference_model_without_parameters_and_whole(program, scope, tmp_path):
    target = program.global_block().var("out")
    with pytest.warns(UserWarning, match="program_only"):
        fluid.io.save_inference_model(str(tmp_path / "a"), ["x"], target, EXE, program, program_only=True)
    assert os.listdir(tmp_path / "a") == ["__model__"]
    fluid.io.save_inference_model(str(tmp_path / "b"), ["x"], target, EXE, program, export_for_deployment=False)
    assert "__model__.main_program" in os.listdir(tmp_path / "b")


def test_inference_model_from_bytes(program, scope, tmp_path):
    target = program.global_block().var("out")
    fluid.io.save_inference_model(str(tmp_path), ["x"], [target], EXE, program, "m", "p")
    with fluid.scope_guard(fluid.Scope()):
        model, params = (tmp_path / "m").read_bytes(), (tmp_path / "p").read_bytes()
        _, feeds, _ = fluid.io.load_inference_model(None, EXE, model, params)
        assert feeds == ["x"]
        assert set(fluid.global_scope().local_var_names()) == {"w", "b"}


# ---- arguments that cannot be ----


def test_targets_and_feeds_are_checked(program, scope, tmp_path):
    out = program.global_block().var("out")
    with pytest.raises(ValueError, match="list of str"):
        fluid.io.save_inference_model(str(tmp_path), [out], [out], EXE, program)
    with pytest.raises(ValueError, match="list of Variable"):
        fluid.io.save_inference_model(str(tmp_path), ["x"], ["out"], EXE, program)
    with pytest.raises(ValueError, match="nothing"):
        fluid.io.save_inference_model(str(tmp_path), ["nothing"], [out], EXE, program)
    assert os.listdir(tmp_path) == []


def test_a_variable_without_value_is_not_saved(program, scope, tmp_path):
    scope.erase(["moment"])
    with pytest.raises(UninitializedVariableError, match="'moment'") as error:
        fluid.io.save_persistables(EXE, str(tmp_path / "new"), program)
    three_parts(error)
    scope.var("moment").get_tensor()
    with pytest.raises(UninitializedVariableError, match="not initialized"):
        fluid.save(program, str(tmp_path / "model"))
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be(program, scope, tmp_path):
    with pytest.raises(ValueError, match="cannot be None at the same time"):
        fluid.io.load_persistables(EXE, None, program)
    with pytest.raises(AssertionError, match="folder/name"):
        fluid.save(program, str(tmp_path) + "/")
    with pytest.raises(ValueError, match="no directory named"):
        fluid.io.load_inference_model(str(tmp_path / "none"), EXE)
    with pytest.raises(TypeError, match="no program"):
        fluid.io.save_persistables(EXE, str(tmp_path), "program")
    with pytest.warns(UserWarning, match="not found"), pytest.raises(FileNotFoundError, match="no model"):
        fluid.load(program, str(tmp_path / "none"), EXE)
    with pytest.warns(UserWarning, match="not found"), pytest.raises(ValueError, match="executor is required"):
        fluid.load(program, str(tmp_path / "none"))


# ---- files that are wrong: an error that says so, and the Scope as it was ----


@pytest.fixture
def folders(program, scope, tmp_path):
    """What the functions write, and other values in the scope."""
    fluid.io.save_persistables(EXE, str(tmp_path / "many"), program)
    fluid.io.save_persistables(EXE, str(tmp_path), program, filename="one")
    fluid.save(program, str(tmp_path / "model"))
    out = program.global_block().var("out")
    fluid.io.save_inference_model(str(tmp_path / "inference"), ["x"], [out], EXE, program)
    for name in VALUES:
        scope.var(name).get_tensor().set(VALUES[name] * 0 + 3, fluid.CPUPlace())
    scope.var("other").get_tensor().set(np.ones(2, "f4"), fluid.CPUPlace())
    return tmp_path


LOADS = {
    "many": lambda program, root: fluid.io.load_persistables(EXE, str(root / "many"), program),
    "one": lambda program, root: fluid.io.load_persistables(EXE, str(root), program, filename="one"),
    "model": lambda program, root: fluid.load(program, str(root / "model")),
    "inference": lambda program, root: fluid.io.load_inference_model(str(root / "inference"), EXE),
}
FILES = {
    "many": "many/w",
    "one": "one",
    "model": "model.pdopt",
    "inference": "inference/b",
}


def fails(kind, program, root, scope, errors=(FileFormatError,)):
    """Load, expect one of the errors, and hold the scope against what it was."""
    before = snapshot(scope)
    with pytest.raises(errors) as error:
        LOADS[kind](program, root)
    assert snapshot(scope) == before
    return three_parts(error)


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("keep", [0, 1, 7, -1])
def test_truncated(kind, keep, program, folders, scope):
    path = folders / FILES[kind]
    path.write_bytes(path.read_bytes()[:keep])
    text = fails(kind, program, folders, scope)
    assert path.name in text


@pytest.mark.parametrize("kind", ["many", "one", "inference"])
def test_oversized(kind, program, folders, scope):
    path = folders / FILES[kind]
    path.write_bytes(path.read_bytes() + b"more")
    assert "follow the end" in fails(kind, program, folders, scope)


@pytest.mark.parametrize("kind", LOADS)
def test_garbage(kind, program, folders, scope, rng):
    (folders / FILES[kind]).write_bytes(rng.bytes(500))
    fails(kind, program, folders, scope)


@pytest.mark.parametrize("kind", ["many", "one", "inference"])
def test_wrong_dtype(kind, program, folders, scope):
    path = folders / FILES[kind]
    data = path.read_bytes()
    at = data.rindex(b"\x08\x05\x10")
    path.write_bytes(data[:at] + b"\x08\x02" + data[at + 2 :])
    text = fails(kind, program, folders, scope, MismatchError)
    assert "float32" in text and "int32" in text


def test_wrong_dtype_in_a_pickle(program, folders, scope):
    path = folders / "model.pdparams"
    path.write_bytes(path.read_bytes().replace(b"f4", b"i4"))
    assert "int32" in fails("model", program, folders, scope, MismatchError)


@pytest.mark.parametrize("kind", LOADS)
def test_wrong_shape(kind, program, folders, scope):
    other = build()
    other.global_block().var("w").desc.set_shape([2, 3])
    if kind == "inference":
        (folders / "inference" / "b").write_bytes((folders / "inference" / "w").read_bytes())
    text = fails(kind, other, folders, scope, MismatchError)
    assert "(3, 2)" in text


@pytest.mark.parametrize("filename", [None, "all"])
def test_a_number_without_dims_fits_one_element(program, scope, tmp_path, filename):
    """``tensor.set(np.array(7), place)`` is kept without dims, and no program can declare that."""
    scope.var("count").get_tensor().set(np.array(7), fluid.CPUPlace())
    fluid.io.save_persistables(EXE, str(tmp_path), program, filename=filename)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(EXE, str(tmp_path), program, filename=filename)
        assert values_of(fluid.global_scope())["count"] == np.array(7)
    program.global_block().var("count").desc.set_shape([2])
    with pytest.raises(MismatchError, match="shape of 'count'"):
        fluid.io.load_persistables(EXE, str(tmp_path), program, filename=filename)


@pytest.mark.parametrize("kind", ["many", "inference"])
def test_missing_file(kind, program, folders, scope):
    (folders / FILES[kind]).unlink()
    fails(kind, program, folders, scope, FileNotFoundError)


def test_errors_are_of_the_kinds_that_scripts_catch(program, folders, scope):
    enforce = fluid.core.EnforceNotMet
    other = build()
    other.global_block().var("w").desc.set_shape([2, 3])
    fails("many", other, folders, scope, RuntimeError)
    (folders / "many" / "w").write_bytes(b"abc")
    fails("many", program, folders, scope, enforce)
    (folders / "many" / "w").unlink()
    fails("many", program, folders, scope, enforce)
    scope.erase(["w"])
    with pytest.raises(enforce, match="cannot be saved"):
        fluid.io.save_persistables(EXE, str(folders / "new"), program)


def test_missing_variable(program, folders, scope):
    block = program.global_block()
    block.create_parameter(name="extra", shape=[1], dtype="float32")
    assert "[extra]" in fails("model", program, folders, scope, MismatchError)
    assert "ends after" in fails("one", program, folders, scope)
    (folders / "model.pdopt").unlink()
    assert "Optimizer file" in fails("model", build(), folders, scope, MismatchError)


def test_a_lying_length_is_refused_before_memory_is_asked_for(program, folders, scope):
    path = folders / "many" / "w"
    desc = b"\x08\x05\x10" + b"\xff\xff\xff\xff\x7f" + b"\x10\x02"
    path.write_bytes(struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc)
    assert "does not fit in the file" in fails("many", program, folders, scope)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../outside"])
def test_names_that_leave_the_folder(name, folders, scope):
    program = fluid.Program()
    program.global_block().create_var(name=name, shape=[3, 2], dtype="float32", persistable=True)
    shutil.copy(folders / "many" / "w", folders / "outside")
    assert repr(name) in fails("many", program, folders, scope, UnsafeNameError)
    scope.var(name).get_tensor().set(VALUES["w"], fluid.CPUPlace())
    with pytest.raises(UnsafeNameError):
        fluid.io.save_persistables(EXE, str(folders / "many"), program)


def changed(data, change):
    message = pb.ProgramDesc.FromString(data)
    change(message)
    return message.SerializePartialToString()


def test_damaged_models(program, folders, scope):
    path = folders / "inference" / "__model__"
    good = path.read_bytes()
    for data, message in (
        (b"", "no blocks"),
        (b"garbage" * 9, "not a program"),
        (good[:-3], "not a program"),
        (changed(good, lambda m: m.blocks[0].ops[0].outputs[0].arguments.__setitem__(0, "none")), "names no variable"),
        (changed(good, lambda m: m.blocks[0].ops[0].outputs[0].arguments.append("w")), "a feed op is damaged"),
        (changed(good, lambda m: m.blocks.add(idx=1, parent_idx=1)), "the parent of block 1 is 1"),
        (changed(good, lambda m: m.blocks[0].ops[1].attrs.add(name="b", type=8, block_idx=0)), "names block 0"),
    ):
        path.write_bytes(data)
        text = fails("inference", program, folders, scope, (FileFormatError, FileNotFoundError))
        assert message in text


@pytest.mark.parametrize("version", [0, 7, 1_999_999, 2_000_000, 2**40, -1])
def test_models_of_every_version(program, folders, scope, version):
    path = folders / "inference" / "__model__"
    path.write_bytes(changed(path.read_bytes(), lambda m: setattr(m.version, "version", version)))
    with fluid.scope_guard(scope):
        loaded, _, _ = fluid.io.load_inference_model(str(folders / "inference"), EXE)
    assert loaded.proto.version.version == version


@pytest.mark.filterwarnings("ignore:the program has attributes")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_change_of_any_file_is_safe(program, folders, scope, data):
    """Whatever happens to a file, loading either works or says why, and a failure changes nothing."""
    kind = data.draw(st.sampled_from(sorted(LOADS)))
    path = folders / data.draw(
        st.sampled_from([FILES[kind], *(["inference/__model__"] if kind == "inference" else [])])
    )
    good = path.read_bytes()
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(changed))))
    before = snapshot(scope)
    path.write_bytes(bytes(changed[:cut]))
    try:
        LOADS[kind](program, folders)
    except (ValueError, FileNotFoundError) as error:
        assert "what to do:" in str(error)
        assert snapshot(scope) == before
    finally:
        path.write_bytes(good)
        for name in set(scope.local_var_names()) - set(before):
            scope.erase([name])
