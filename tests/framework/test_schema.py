"""The schema and its generated module say the same, and every recorded program survives a round trip."""

from __future__ import annotations

import gzip
import re
import tempfile
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.proto import framework_pb2 as pb
from lowering.program import OpView
from tests.golden import recordings

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "proto" / "framework.proto"
LABELS = {"optional": 1, "required": 2, "repeated": 3}
SCALARS = {"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9}


def declared(text: str) -> tuple[dict, dict]:
    """(fields by message, values by enum) of a schema's text."""
    fields: dict[str, dict] = {}
    enums: dict[str, dict] = {}
    path: list[tuple[str, str]] = []
    text = re.sub(r"//.*", "", text)
    for statement in re.findall(r"[^;{}]+[;{]|\}", text):
        statement = " ".join(statement.split())
        name = ".".join(part for _, part in path)
        if opened := re.match(r"(message|enum) (\w+) \{", statement):
            path.append((opened[1], opened[2]))
            (fields if opened[1] == "message" else enums)[".".join(part for _, part in path)] = {}
        elif statement == "}":
            path.pop()
        elif field := re.match(
            r"(optional|required|repeated) (\w+) (\w+) = (\d+)(?: \[ ?default = ([\w-]+) ?\])?", statement
        ):
            fields[name][field[3]] = (field[1], field[2], int(field[4]), field[5] or "")
        elif value := re.match(r"(\w+) = (\d+);", statement):
            if path and path[-1][0] == "enum":
                enums[name][value[1]] = int(value[2])
    return fields, enums


def generated() -> tuple[dict, dict]:
    """The same of the module's descriptor."""
    fields: dict[str, dict] = {}
    enums: dict[str, dict] = {}
    scalars = {number: name for name, number in SCALARS.items()}
    labels = {number: name for name, number in LABELS.items()}

    def visit(message: descriptor_pb2.DescriptorProto, prefix: str) -> None:
        name = prefix + message.name
        fields[name] = {
            f.name: (labels[f.label], scalars.get(f.type) or f.type_name.rsplit(".", 1)[-1], f.number, f.default_value)
            for f in message.field
        }
        for nested in message.nested_type:
            visit(nested, name + ".")
        for enum in message.enum_type:
            enums[f"{name}.{enum.name}"] = {v.name: v.number for v in enum.value}

    file = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    for message in file.message_type:
        visit(message, "")
    for enum in file.enum_type:
        enums[enum.name] = {v.name: v.number for v in enum.value}
    return fields, enums


def test_schema_and_module_are_equal() -> None:
    fields, enums = declared(SCHEMA.read_text())
    assert len(fields) == 25 and len(enums) == 4, "the reader of the schema lost something"
    assert (fields, enums) == generated()
    assert pb.DESCRIPTOR.package == "paddle.framework.proto"


def _messages(messages) -> list:
    return [m for message in messages for m in (message, *_messages(message.nested_type))]


def test_protoc_gives_this_module() -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptor"
        args = ["protoc", f"--proto_path={SCHEMA.parent}", f"--descriptor_set_out={out}", str(SCHEMA)]
        assert protoc.main(args) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    kept = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    made = files.file[0]
    for message in _messages(made.message_type):
        for field in message.field:
            field.ClearField("json_name")  # protoc adds it to descriptor sets only
    for field in ("message_type", "enum_type"):
        pairs = zip(getattr(kept, field), getattr(made, field), strict=True)
        assert all(a.SerializeToString() == b.SerializeToString() for a, b in pairs)


def programs() -> dict[str, bytes]:
    """All recorded ProgramDescs by where they come from."""
    folder = recordings.folder()
    found = {
        str(path.relative_to(folder)): gzip.decompress(path.read_bytes()) for path in folder.glob("zoo/*/*.bin.gz")
    }
    for op_type in recordings.op_types():
        for case in recordings.op_cases(op_type):
            found[case.id + op_type] = case.program
    return found


def test_recorded_programs_survive_a_round_trip() -> None:
    found = programs()
    assert len(found) > 100
    changed = [
        name for name, data in found.items() if fluid.Program.parse_from_string(data).desc.serialize_to_string() != data
    ]
    assert changed == []


def test_unknown_fields_survive() -> None:
    extra = b"\xba\x3e\x03abc"  # field 999, three bytes
    data = fluid.Program().desc.serialize_to_string() + extra
    program = fluid.Program.parse_from_string(data)
    assert program.desc.serialize_to_string() == data
    assert program.clone().desc.serialize_to_string().endswith(extra)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda p: p.blocks[0].__setattr__("parent_idx", 0), "parent of block 0"),
        (lambda p: p.blocks[0].__setattr__("idx", 3), "says that it is number 3"),
        (lambda p: p.blocks.add(idx=1, parent_idx=1), "parent of block 1"),
        (lambda p: p.blocks[0].vars.add(name="x").type.__setattr__("type", 7), "two variables named 'x'"),
        (lambda p: p.blocks[0].ops[0].attrs.add(name="sub_block", type=8, block_idx=0), "names block 0 in sub_block"),
        (lambda p: p.blocks[0].ops[0].attrs.add(name="blocks", type=10, blocks_idx=[7]), "names block 7 in blocks"),
        (lambda p: p.blocks.__delitem__(0), "no blocks"),
        (lambda p: p.blocks[0].ops.add(type=""), "has no type"),
    ],
)
def test_damaged_programs_are_told(damage, told: str) -> None:
    message = pb.ProgramDesc()
    message.blocks.add(idx=0, parent_idx=-1).vars.add(name="x").type.type = 7
    message.blocks[0].ops.add(type="relu")
    damage(message)
    with pytest.raises(ValueError, match="the program is damaged.*" + re.escape(told)):
        fluid.Program.parse_from_string(message.SerializePartialToString())


def test_garbage_is_no_program() -> None:
    with pytest.raises(ValueError, match="are not a program"):
        fluid.Program.parse_from_string(b"\xff\xfe garbage")


def a_program() -> bytes:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = program.global_block().create_var(name="x", shape=[-1, 4], dtype="float32")
        inner = program._create_block()
        program._rollback()
        program.global_block()._append_op_desc("while", {"X": ["x"]}, {"Out": ["x"]}, {"sub_block": inner})
        (x * 2.0).op._set_attr("op_callstack", [])
    return program.desc.serialize_to_string()


def test_an_op_role_of_another_type_is_refused() -> None:
    message = pb.ProgramDesc.FromString(a_program())
    (role,) = (attr for attr in message.blocks[0].ops[-1].attrs if attr.name == "op_role")
    role.type = 1
    with pytest.raises(ValueError, match=r"op_role of op \d of block 0 \(\w+\) is no INT"):
        fluid.Program.parse_from_string(message.SerializeToString())


@pytest.mark.parametrize("stack", [1.5, "x", [1, 2], None])
def test_a_call_stack_of_another_type_is_none(stack) -> None:
    op = OpView("relu", {}, {}, {"op_callstack": stack})
    assert op.user_line() == ""


@pytest.mark.filterwarnings("ignore:.*attribute:UserWarning")
@settings(max_examples=400, deadline=None)
@given(st.data())
def test_mutated_bytes_are_a_program_or_a_value_error(data) -> None:
    """Whatever the bytes: a program whose every part can be read, or ValueError."""
    content = bytearray(a_program())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if kind == "flip":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 8))]
        else:
            content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    try:
        program = fluid.Program.parse_from_string(bytes(content))
    except ValueError as error:
        assert "program is damaged" in str(error) or "are not a program" in str(error)
        return
    assert program.desc.serialize_to_string() and program.to_string(False) and program._repr_html_()
    fluid.framework.program_view(program)
    program.clone(for_test=True)
    program._prune([op for op in program.global_block().ops])
