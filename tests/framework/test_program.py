"""Program and Block: building, copying, pruning, versions, text."""

from __future__ import annotations

import re
from collections import OrderedDict

import pytest

import fluidjax as fluid
from fluidjax import framework
from fluidjax.framework import Parameter, Program, listing, user_line


def data(program: Program, name: str = "x", shape: tuple[int, ...] = (-1, 4), dtype: str = "float32"):
    return program.global_block().create_var(name=name, shape=shape, dtype=dtype, is_data=True)


@pytest.fixture
def program():
    """An empty program that layers write to."""
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        yield main


def types(program: Program, block: int = 0) -> list[str]:
    return [op.type for op in program.block(block).ops]


def test_guards_switch_and_restore() -> None:
    before = fluid.default_main_program(), fluid.default_startup_program()
    main, startup = Program(), Program()
    with pytest.raises(RuntimeError), fluid.program_guard(main, startup):
        assert (fluid.default_main_program(), fluid.default_startup_program()) == (main, startup)
        raise RuntimeError
    assert (fluid.default_main_program(), fluid.default_startup_program()) == before
    with fluid.program_guard(main):
        assert fluid.default_startup_program() is before[1]
    with pytest.raises(TypeError, match="Expected a Program"), fluid.program_guard("main"):  # type: ignore[arg-type]
        pass
    assert framework.switch_main_program(main) is before[0]
    assert framework.switch_main_program(before[0]) is main


def test_every_change_makes_another_version(program: Program) -> None:
    seen = [program._version_token()]

    def changed(what: str) -> None:
        assert program._version_token() not in seen, what
        seen.append(program._version_token())

    x = data(program)
    changed("create_var")
    y = x * 2.0
    changed("append_op")
    op = program.global_block().ops[0]
    op._set_attr("scale", 3.0)
    changed("set_attr")
    y.persistable = True
    changed("persistable")
    op.desc.set_input("X", [y.name])
    changed("desc.set_input")
    assert op.input("X") == [y.name]
    program.global_block().desc.op(0).set_output("Out", ["x"])
    changed("block.desc")
    assert op.output("Out") == ["x"], "a change below the view must be seen"
    program.random_seed = 5
    changed("random_seed")
    program.global_block()._remove_op(0)
    changed("remove_op")
    assert types(program) == []
    assert Program()._version_token() != Program()._version_token()


def test_view_is_made_once_per_version(program: Program) -> None:
    x = data(program)
    view = fluid.framework.program_view(program)
    assert fluid.framework.program_view(program) is view
    x * 2.0
    changed = fluid.framework.program_view(program)
    assert changed is not view
    op = changed.blocks[0].ops[0]
    assert (op.type, op.inputs["X"], op.attrs["scale"], op.index) == ("scale", ["x"], 2.0, 0)
    assert changed.blocks[0].vars["x"].shape == (-1, 4)


def test_fingerprint_is_content(program: Program) -> None:
    x = data(program)
    x * 2.0
    copy = program.clone()
    assert copy.fingerprint() == program.fingerprint()
    other = Program()
    with fluid.program_guard(other), fluid.unique_name.guard():
        data(other) * 2.0  # another line: the call stack differs, the content does not
    assert other.fingerprint() == program.fingerprint()
    copy.global_block().ops[0]._set_attr("scale", 2.5)
    assert copy.fingerprint() != program.fingerprint()


def test_clone_keeps_what_messages_do_not_hold(program: Program) -> None:
    x = data(program)
    x.stop_gradient = True
    attr = fluid.ParamAttr(name="w", learning_rate=0.5, trainable=False, regularizer=fluid.regularizer.L2Decay(0.1))
    weight = fluid.layer_helper.LayerHelper("fc").create_parameter(attr, [4, 3], "float32")
    program.random_seed = 7
    copy = program.clone()
    cloned = copy.global_block().var("w")
    assert isinstance(cloned, Parameter) and cloned is not weight
    assert cloned.optimize_attr == {"learning_rate": 0.5} and not cloned.trainable
    assert cloned.regularizer is weight.regularizer
    assert copy.global_block().var("x").stop_gradient and copy.global_block().var("x").is_data
    assert copy.random_seed == 7
    cloned.persistable = False
    assert weight.persistable


def test_a_copy_has_the_same_attributes(program: Program) -> None:
    """As Paddle's own scripts compare programs: by ``__dict__``, variables by their text."""

    def seen(thing: object) -> dict[str, object]:
        found = {
            name: value for name, value in vars(thing).items() if name not in ("program", "block", "blocks", "ops")
        }
        return {name: list(map(str, v.values())) if isinstance(v, OrderedDict) else v for name, v in found.items()}

    weight = fluid.layer_helper.LayerHelper("fc").create_parameter(fluid.ParamAttr(name="w"), [4, 3], "float32")
    fluid.layers.mul(data(program), weight)
    copy = program.clone()
    assert program.global_block().ops[0].input_arg_names  # what it caches is no difference
    things = [(p, p.global_block(), p.global_block().ops[0]) for p in (program, copy)]
    assert [seen(thing) for thing in things[0]] == [seen(thing) for thing in things[1]]
    assert isinstance(copy.global_block().vars, OrderedDict)


def test_clone_for_test_drops_training(program: Program) -> None:
    x = data(program)
    h = x * 2.0
    block = program.global_block()
    block.append_op(
        type="dropout", inputs={"X": h}, outputs={"Out": h, "Mask": block.create_var(name="m", dtype="uint8")}
    )
    loss = h + 1.0
    block.create_var(name="g", shape=[-1, 4], dtype="float32")
    with program._lr_schedule_guard():
        loss * 3.0
    with program._backward_role_guard():
        program._op_role = 1 | 256
        block.append_op(type="fill_constant", outputs={"Out": "g"}, attrs={"shape": [1], "dtype": 5})
    with program._optimized_guard([x, "g"]):
        x * 4.0
    assert block.ops[-1].attr("op_role") == 2 and block.ops[-1].attr("op_role_var") == ["x", "g"]
    test = program.clone(for_test=True)
    assert types(test) == ["scale", "dropout", "scale"]
    assert test.global_block().ops[1].attr("is_test") is True
    assert not block.ops[1].attr("is_test"), "the original stays a training program"
    assert not test.global_block().has_var("g")


def test_prune_follows_writes_in_order(program: Program) -> None:
    """A name written twice: the target needs the last write before it, and what that reads."""
    x, y = data(program), data(program, "y")
    block = program.global_block()
    a = block.create_var(name="a", dtype="float32")

    def write(source, scale: float, target) -> None:
        block.append_op(type="scale", inputs={"X": source}, outputs={"Out": target}, attrs={"scale": scale})

    write(x, 1.0, a)  # lost: overwritten before it is read
    write(y, 2.0, a)
    write(a, 3.0, a)  # in place
    out = a * 4.0
    write(x, 5.0, a)  # after the target
    pruned = program._prune([out])
    assert [op.attr("scale") for op in pruned.global_block().ops] == [2.0, 3.0, 4.0]
    assert not pruned.global_block().has_var("x")
    assert [op.attr("scale") for op in program._prune_with_input(["a"], [out]).global_block().ops] == [4.0]
    assert [op.attr("scale") for op in program._prune(a).global_block().ops] == [5.0]
    assert types(program) == ["scale"] * 5


def test_prune_to_an_op(program: Program) -> None:
    x = data(program)
    y = x * 2.0
    x * 3.0
    assert types(program._prune(program.global_block().ops[0])) == ["scale"]
    with pytest.raises(ValueError, match="can only be Variable or Operator"):
        program._prune([3])
    with pytest.raises(ValueError, match="should have an associated operator that generates it.*nothing_like_it"):
        program._prune(["nothing_like_it"])
    assert program._prune([y.name]).global_block().has_var(y.name)
    with pytest.raises(ValueError, match="All feeded_var_names .* can only be str, but received <class 'int'>"):
        program._prune_with_input([1], [y])
    assert types(program._prune_with_input(y.name, [y * 4.0])) == ["scale"]


def sub_block_op(program: Program, reads: str, writes: str):
    """An op with a block of its own that computes `writes` from `reads`."""
    inner = program._create_block()
    inner.append_op(type="scale", inputs={"X": reads}, outputs={"Out": writes}, attrs={"scale": 2.0})
    program._rollback()
    return program.global_block()._append_op_desc(
        "conditional_block", {"Cond": [], "Input": []}, {"Out": [writes], "Scope": []}, {"sub_block": inner}
    )


def test_prune_keeps_and_renumbers_sub_blocks(program: Program) -> None:
    x, y = data(program), data(program, "y")
    block = program.global_block()
    for name in ("a", "b"):
        block.create_var(name=name, shape=[-1, 4], dtype="float32")
    sub_block_op(program, x.name, "a")
    z = y * 3.0
    sub_block_op(program, z.name, "b")
    pruned = program._prune(["b"])
    assert types(pruned) == ["scale", "conditional_block"] and pruned.num_blocks == 2
    op = pruned.global_block().ops[1]
    assert op._block_attr_id("sub_block") == 1 and op._block_attr("sub_block") is pruned.block(1)
    assert pruned.block(1).ops[0].input("X") == [z.name], "what the block reads from outside is kept"
    assert program.block(2).ops[0].input("X") == [z.name] and program.num_blocks == 3
    assert pruned.block(1)._var_recursive("b").block is pruned.global_block()


def test_conditional_writes_do_not_hide_earlier_ones(program: Program) -> None:
    x = data(program)
    block = program.global_block()
    a = block.create_var(name="a", shape=[-1, 4], dtype="float32")
    block.append_op(type="scale", inputs={"X": x}, outputs={"Out": a}, attrs={"scale": 5.0})
    sub_block_op(program, x.name, "a")
    assert types(program._prune(["a"])) == ["scale", "conditional_block"]


def test_blocks_nest_and_roll_back(program: Program) -> None:
    inner = program._create_block()
    assert program.current_block() is inner and (inner.idx, inner.parent_idx) == (1, 0)
    data(program)
    assert inner._find_var_recursive("x") is program.global_block().var("x")
    assert not inner.has_var("x")
    inner._set_forward_block_idx(0)
    assert program.global_block().backward_block_idx == 1
    program._rollback()
    assert program.current_block() is program.global_block()
    with pytest.raises(IndexError):
        program.block(7)


def test_insert_prepend_remove_keep_message_and_views_together(program: Program) -> None:
    x = data(program)
    block = program.global_block()
    for scale in (1.0, 2.0):
        block.append_op(type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": scale})
    block._prepend_op(type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": 3.0})
    block._insert_op(2, type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": 4.0})
    block._remove_op(1)
    assert [op.attr("scale") for op in block.ops] == [3.0, 4.0, 2.0]
    assert [op.idx for op in block.ops] == [0, 1, 2]
    assert all(op.proto is message for op, message in zip(block.ops, block.proto.ops, strict=True))
    with pytest.raises(ValueError):
        block._insert_op(1, type="scale", inputs={"Y": x}, outputs={"Out": x})
    assert len(block.ops) == len(block.proto.ops) == 3


def test_renaming_and_removing_variables(program: Program) -> None:
    x = data(program)
    y = x * 2.0
    block = program.global_block()
    block._rename_var("x", "renamed")
    assert x.name == "renamed" and block.ops[0].input("X") == ["renamed"] and not block.has_var("x")
    block._remove_var(y.name)
    assert [v.name for v in block.proto.vars] == ["renamed"]
    with pytest.raises(ValueError, match="not in this block"):
        block.var(y.name)


def test_renaming_reaches_what_ops_are_about(program: Program) -> None:
    x, grad = data(program), data(program, "x@GRAD")
    block = program.global_block()
    with program._optimized_guard([x, grad]):
        update = block.append_op(type="scale", inputs={"X": x}, outputs={"Out": x})
        other = block.append_op(type="relu", inputs={"X": grad}, outputs={"Out": grad})
    block._rename_var("x@GRAD", "x@GRAD.trainer_1")
    assert update.attr("op_role_var") == other.attr("op_role_var") == ["x", "x@GRAD.trainer_1"]
    assert other.output("Out") == ["x@GRAD.trainer_1"]


def test_changes_of_the_message_are_taken_in(program: Program) -> None:
    x = data(program)
    first = x * 2.0
    block = program.global_block()
    kept = block.ops[0]
    op = block.desc.append_op()
    op.set_type("scale")
    op.set_input("X", [first.name])
    op.set_output("Out", ["z"])
    block.desc.var("z").set_shape([-1, 4])
    program._sync_with_cpp()
    assert types(program) == ["scale", "scale"] and block.ops[0] is kept
    assert block.var("z").shape == (-1, 4) and block.var("x") is x


def test_seeds() -> None:
    program = Program()
    try:
        program.global_seed(11)
        assert program.random_seed == 11 and Program().random_seed == 11
        assert framework.global_prog_seed == 11
    finally:
        Program().global_seed(0)
    with pytest.raises(ValueError, match="must be an integer"):
        program.random_seed = "a"  # type: ignore[assignment]


def test_name_scopes_number_repeats(program: Program) -> None:
    x = data(program)
    with fluid.name_scope("a_scope_of_this_test"):
        x * 1.0
        with fluid.name_scope("inner"):
            x * 2.0
        with fluid.name_scope("inner"):
            x * 3.0
    with fluid.name_scope("a_scope_of_this_test"), fluid.device_guard("gpu:0"):
        x * 4.0
    x * 5.0
    ops = program.global_block().ops
    top = "/a_scope_of_this_test"
    assert [op.attr("op_namescope") for op in ops] == [f"{top}/", f"{top}/inner/", f"{top}/inner_1/", f"{top}_1/", "/"]
    assert [op.attr("op_device") for op in ops] == ["", "", "", "gpu:0", ""]
    with pytest.raises(ValueError, match="device_guard"), fluid.device_guard("tpu"):
        pass
    with pytest.raises(AssertionError, match="prefix is empty"), fluid.name_scope():
        pass


def test_ops_know_the_line_that_made_them(program: Program) -> None:
    x = data(program)
    y = x * 2.0  # the user's line
    assert re.search(r"test_program\.py:\d+: y = x \* 2\.0  # the user's line$", user_line(y.op))
    stack = y.op.attr("op_callstack")
    assert stack[0].startswith('  File "') and "in append_op" in stack[0], "innermost call first"
    assert user_line(Program.parse_from_string(program.desc.serialize_to_string()).global_block().ops[0]) == user_line(
        y.op
    )
    raw = program.global_block()._append_op_desc("scale", {"X": ["x"]}, {"Out": ["x"]}, {"scale": 1.0})
    assert user_line(raw) == "(line not recorded)"


def test_text_is_protobufs(program: Program) -> None:
    x = data(program)
    assert str(x) == (
        'name: "x"\ntype {\n  type: LOD_TENSOR\n  lod_tensor {\n    tensor {\n      data_type: FP32\n      dims: -1\n'
        "      dims: 4\n    }\n  }\n}\n"
    )
    assert x.to_string(True, True) == str(x) + "error_clip: None\nstop_gradient: False\n"
    weight = program.global_block().create_parameter(name="w", shape=[4], dtype="float32")
    assert weight.to_string(True, True).endswith(
        "trainable: True\noptimize_attr: {'learning_rate': 1.0}\nregularizer: None\ndo_model_average: None\n"
    )
    x * 2.0
    text = program.to_string(True)
    assert text.startswith('blocks {\n  idx: 0\n  parent_idx: -1\n  vars {\n    name: "x"')
    assert 'type: "scale"\n    attrs {' in text and 'inputs {\n      parameter: "X"\n      arguments: "x"' in text
    detailed = program.to_string(True, with_details=True)
    assert "\n    stop_gradient: False\n" in detailed and detailed.endswith("}")
    assert str(program.global_block().ops[0]).startswith('inputs {\n  parameter: "ScaleTensor"\n}\ninputs {\n')
    with pytest.raises(AssertionError, match="expected bool"):
        program.to_string(1)  # type: ignore[arg-type]


def test_incomplete_messages_are_told(program: Program) -> None:
    var = program.global_block().create_var(name="half", shape=[1])
    with pytest.raises(ValueError, match="not complete: type.lod_tensor.tensor.data_type not set"):
        var.to_string(True)
    assert "dims: 1" in var.to_string(False)


def test_listing(program: Program) -> None:
    data(program)
    weight = program.global_block().create_parameter(name="w", shape=[4], dtype="float32")
    program._create_block().create_var(name="inner", dtype="float32")
    assert [v.name for v in program.list_vars()] == ["x", "w", "inner"]
    assert program.all_parameters() == [weight]
    assert list(program.global_block().iter_parameters()) == [weight]


def test_feed_and_fetch_names_follow_their_columns() -> None:
    program = Program()
    block = program.global_block()
    for col, name in ((1, "b"), (0, "a")):
        block._append_op_desc("feed", {"X": ["feed"]}, {"Out": [name]}, {"col": col})
        block._append_op_desc("fetch", {"X": [name]}, {"Out": ["fetch"]}, {"col": col})
    assert program.desc.get_feed_target_names() == ["a", "b"]
    assert program.desc.get_fetch_target_names() == ["a", "b"]


def test_lines_of_programs_that_fluid_made(program: Program) -> None:
    stack = [
        '  File "/lib/paddle/fluid/framework.py", line 2610, in append_op\n    attrs=attrs)\n',
        '  File "/lib/paddle/fluid/layers/nn.py", line 12, in fc\n    helper.append_op()\n',
        '  File "/home/me/train.py", line 7, in <module>\n    y = fluid.layers.fc(x, 3)\n',
    ]
    op = program.global_block()._append_op_desc("mul", {}, {}, {"op_callstack": stack})
    assert user_line(op) == "/home/me/train.py:7: y = fluid.layers.fc(x, 3)"
    op._set_attr("op_callstack", stack[:2])
    assert user_line(op) == "(line not recorded)"


def test_printing_compares_each_name_a_few_times_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    program, count = Program(), 200
    block = program.global_block()
    held = [block.create_var(name=f"moment_{i}", shape=[1], persistable=True) for i in range(count)]
    monkeypatch.setattr(listing, "_declared", lambda _: iter((listing.KEPT, Name(v.name), v) for v in held))
    assert f"{count} variables" in listing.program_text(program)
    assert Name.compared < 5 * count
