"""What `fluidjax run` gives scripts of the Python, NumPy and protobuf of their time, and the processes they start."""

import importlib
import pickle
import sys
import tomllib

import pytest
from google.protobuf import descriptor_pb2, text_format

from fluidjax.command import run as command
from fluidjax.command.advice import PADDLE_NEEDS, advice
from fluidjax.legacy import later, package_names, protobuf_stubs, pyarrow_serialization, python_names
from tests.cli.test_run import ROOT, run

OLD_TIMES = """
import base64, collections, fractions, inspect, io, json, math, random, threading, time
import xml.etree.cElementTree as ElementTree
from collections import Iterable, Mapping
import numpy as np
import paddle.fluid as fluid

# Python
assert isinstance([], Iterable) and isinstance({}, collections.Mapping) and Mapping is collections.Mapping
assert time.clock() <= time.clock() and fractions.gcd(12, 18) == 6
assert base64.decodestring(base64.encodestring(b'x')) == b'x'
assert inspect.getargspec(lambda a, b=1: 0) == (['a', 'b'], None, None, (1,))
assert not threading.Thread().isAlive() and ElementTree.fromstring('<a/>').tag == 'a'
assert json.loads('[1]', encoding='utf8') == json.load(io.StringIO('[1]'), encoding='utf-8') == json.loads(b'[1]')
assert json.loads('[1.5]', parse_float=str) == ['1.5']
random.seed(3)
drawn = random.sample({1, 2, 3}, 2), random.sample({4: 'a'}.keys(), 1), random.sample([1, 2, 3], k=2, counts=[1, 1, 1])
assert drawn == ([1, 3], [4], [3, 2]), drawn
shuffled = [1, 2, 3, 4]
random.shuffle(shuffled, lambda: 0.5)
assert shuffled == [1, 4, 2, 3], shuffled
random.shuffle(shuffled)
assert random.Random(5).sample(frozenset([7]), 1) == [7] and sorted(shuffled) == [1, 2, 3, 4]

# unittest, which compares numbers of NumPy and Python as doubles
import unittest
case = unittest.TestCase()
assert round(abs(0.9 - np.float32(0.90000004)), 7) != 0  # NumPy 2
case.assertAlmostEqual(0.9, np.float32(0.90000004))
case.assertAlmostEqual(np.float32(0.90000004), 0.9)
case.assertNotAlmostEqual(1, np.float32(1.000001))
case.assertAlmostEqual(np.zeros(1), np.zeros(1))

# NumPy
assert (np.float, np.int, np.object, np.str, np.complex) == (float, int, object, str, complex)
assert np.zeros(2, np.bool).dtype == bool and np.zeros(1, np.float_).dtype == 'float64'
assert np.product([2, 3]) == 6 and np.cumproduct([2, 3]).tolist() == [2, 6] and np.alltrue([1]) and np.sometrue([1])
assert np.Inf == np.PINF == -np.NINF and np.isnan(np.NaN) and np.unicode_ is np.str_
assert np.in1d([[1, 2]], [2]).tolist() == [False, True] and np.asscalar(np.ones(1)) == 1 and np.alen([1, 2]) == 2
assert np.asfarray([1]).dtype == 'float64' and np.msort([2, 1]).tolist() == [1, 2] and np.trapz([1, 1]) == 1
assert np.fromstring(b'\\x01\\x02', 'uint8').tolist() == [1, 2] and np.fromstring('1 2', sep=' ').tolist() == [1, 2]
ragged = np.array([[1, 2], [3]])
assert ragged.dtype == object and ragged.shape == (2,) and np.asarray([[1], []]).tolist() == [[1], []]
assert np.array([[1, 2], [3, 4]], 'int32', copy=True).dtype == 'int32' and np.array(object=[1]).tolist() == [1]
assert np.array([1], 'float32', copy=False).dtype == 'float32' and np.array(ragged[0], None, False).tolist() == [1, 2]
assert np.array(array_ := np.ones(2), copy=False) is array_ and np.array(array_) is not array_
assert np.array(array_, copy=np._CopyMode.IF_NEEDED) is array_  # as SciPy asks
assert repr([np.float32(0.5), np.int64(2)]) == '[0.5, 2]'  # NumPy 2 adds the types
assert np.cast['int32']([1.5]) == [1] and np.sctypes['float'][1] is np.float32 and np.lib.pad([1], 1, 'edge').size == 3
assert np.find_common_type([np.float32], [np.float64]) == 'float32' and np.sum(i for i in range(4)) == 6 == np.sum([6])
assert np.find_common_type(['int64'], ['float32']) == 'float32' and np.find_common_type(['f4', 'f8'], []) == 'float64'
assert np.reshape(np.arange(4), newshape=[2, 2]).shape == (2, 2) and np.math.sqrt(4) == 2 and np.typeDict['float32']
assert np.cast['float32']([1]).dtype == 'float32' and np.float32 in np.sctypes['float'] and np.lib.pad is np.pad
assert np.find_common_type(['float32', 'int64'], []) == 'float64' and np.find_common_type(['int8'], ['int64']) == 'int8'
assert np.find_common_type(['int8'], ['float32']) == 'float32' and np.find_common_type([], ['bool']) == bool
assert np.issubsctype(np.ones(1), np.floating) and not np.issubsctype('int8', 'int16') and np.issctype(np.int8)
assert np.sctype2char(np.float32) == 'f' and np.obj2sctype('f4') is np.float32 and np.obj2sctype(3) is None
assert np.array([-1, 300], 'uint8').tolist() == [255, 44]
try:
    raise SystemExit(f"infinity is {np.array(np.inf, 'int64')}")
except OverflowError:
    pass
assert np.percentile([1, 2, 4], 40, interpolation='lower') == 1 and np.quantile([1, 3], q=0.5) == 2
assert np.vstack(map(np.array, [[1], [2]])).shape == (2, 1) and np.stack(iter(np.eye(3)), 1).shape == (3, 3)
try:
    np.array([[1, 2], [3]], 'int64')
except ValueError as error:
    assert 'inhomogeneous' in str(error)
else:
    assert False
assert issubclass(np.VisibleDeprecationWarning, UserWarning) and issubclass(np.AxisError, IndexError)
array = np.zeros((2, 3))
array.itemset((1, 2), 5)
array.itemset(1, 4)
assert array.tolist() == [[0, 4, 0], [0, 0, 5]] and array.ptp() == 5 and len(array.tostring()) == 48
assert np.arange(2, dtype='int16').newbyteorder().tolist() == [0, 256]

# Arrays of one element, fetched and others
x = fluid.data('x', [None, 1], 'float32')
loss = fluid.layers.mean(x)
exe = fluid.Executor(fluid.CPUPlace())
feed = {'x': np.array([[1.25], [2.5]], 'float32')}
fetched, = exe.run(feed=feed, fetch_list=[loss])
tensor, = exe.run(feed=feed, fetch_list=[loss], return_numpy=False)
print('%f %d %.2f' % (fetched, fetched, np.array(tensor)), float(np.array(tensor)), int(np.array(fetched)))
print('%.3f' % np.mean([fetched, fetched], axis=0), complex(np.ones((1, 1))), float(np.array(3)), math.sqrt(np.ones(1)))
into = np.zeros(2)
into[0] = np.ones(1)

# A float32 array times a float64 number
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter('always')
    for _ in range(3):
        wide, = exe.run(feed={'x': feed['x'] * np.sqrt(4)}, fetch_list=[loss])
assert wide.dtype == 'float32' and float(wide) == 3.75, (wide.dtype, wide)
assert (np.float32(1) * np.float64(2)).dtype == 'float64' and 'which is rounded' in str(told[0].message), told
for many in (np.ones(2), np.ones(0)):
    for convert in (float, int, complex):
        try:
            convert(many)
        except TypeError as error:
            assert 'one element' in str(error)
        else:
            assert False
"""


def test_a_script_of_old_times(tmp_path):
    (tmp_path / "old.py").write_text(OLD_TIMES)
    done = run(tmp_path, "run", "old.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1.875000 1 1.88 1.875 1\n1.875 (1+0j) 3.0 1.0\n"


def test_an_import_of_fluidjax_changes_nothing():
    import collections

    import numpy as np

    assert not hasattr(np, "product") and not hasattr(collections, "Iterable")
    assert "fluidjax.legacy" not in sys.modules or not hasattr(np.ndarray, "itemset")


def test_getargspec_refuses_what_it_cannot_tell():
    with pytest.raises(ValueError, match="signature"):
        python_names.getargspec(lambda *, a: 0)


# --- processes that a script starts --------------------------------------------------------------------------------

GENERATOR = """
import sys
import numpy as np
import paddle.fluid.incubate.data_generator as dg

class Numbers(dg.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            if 'bad' in line:
                sys.exit('this line is bad')
            yield [('x', [np.float(word) for word in line.split()])]
        return samples

Numbers().run_from_stdin()
"""

PIPES = """
import subprocess
import sys
import paddle.fluid as fluid

def read(path):
    dataset = fluid.DatasetFactory().create_dataset('InMemoryDataset')
    dataset.set_use_var([fluid.data('x%d' % len(sys.argv), [None, 2], 'float32')])
    sys.argv.append('')
    dataset.set_batch_size(2)
    dataset.set_filelist([path])
    dataset.set_pipe_command('python generator.py')
    dataset.load_into_memory()
    print([feed for feed in dataset._feeds()][0].popitem()[1].tolist())

read('good.txt')
try:
    read('bad.txt')
except RuntimeError as error:
    print(error)
"""


def test_pipe_commands_find_paddle_and_show_their_own_error(tmp_path):
    for name, text in {
        "generator.py": GENERATOR,
        "train.py": PIPES,
        "good.txt": "1 2\n3 4\n",
        "bad.txt": "1 2\nbad\n",
    }.items():
        (tmp_path / name).write_text(text)
    done = run(tmp_path, "run", "train.py")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "[[1.0, 2.0], [3.0, 4.0]]"
    assert lines[1] == "the pipe command 'python generator.py' failed on bad.txt"
    assert lines[3:5] == ["  received: exit status 1, and this on its standard error:", "this line is bad"]


def test_the_environment_of_children(monkeypatch):
    from fluidjax.command import aliases

    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, aliases.AliasFinder)])
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert aliases.child_environment()["PYTHONPATH"] == "mine"
    sys.meta_path.append(aliases.AliasFinder())
    folder, *others = aliases.child_environment()["PYTHONPATH"].split(":")
    assert folder.endswith("served") and others == ["mine"]
    monkeypatch.setenv("PYTHONPATH", f"mine:{folder}")
    assert aliases.child_environment()["PYTHONPATH"] == f"{folder}:mine"


# --- what came with Paddle -----------------------------------------------------------------------------------------


def test_the_extra_holds_what_the_command_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {requirement.partition(">")[0] for requirement in project["optional-dependencies"]["legacy"]}
    assert extra == set(PADDLE_NEEDS.values())


def test_the_advice_names_the_extra():
    told = advice(ModuleNotFoundError("No module named 'six.moves'", name="six.moves"))
    assert "pip install six" in told and "fluidjax[legacy]" in told
    assert not advice(ModuleNotFoundError(name="numpi")) and not advice(KeyError("six"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("print 'loss'", "line 1: this is not Python 3"),
        ("raise ValueError, 'loss'", "line 1: this is not Python 3"),
        ("print('loss'", ""),
        ("import cPickle", "the module 'cPickle' is Python 2's"),
        ("xrange(3)", "the name 'xrange' is Python 2's"),
        ("{}.iteritems()", "dict.iteritems is Python 2's"),
        ("import pickle; pickle.loads(b\"S'\\\\xff'\\n.\")", "pickle.load(file, encoding='latin1')"),
        ("undefined", ""),
        ("''.iteritems()", ""),
    ],
)
def test_advice_for_scripts_of_python_2(line, told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    script = tmp_path / "old.py"
    script.write_text(line)
    assert command._run(str(script), [], False) == 1
    shown = capsys.readouterr().err
    assert told in shown and ("fluidjax: " in shown) == bool(told) and "runpy" not in shown


def test_names_of_packages_that_came_with_paddle(tmp_path, monkeypatch):
    """Stand-ins, as the packages need not be installed."""
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("")
    (tmp_path / "PIL" / "Image.py").write_text("LANCZOS, BILINEAR, BICUBIC, CUBIC = 1, 2, 3, 4")
    (tmp_path / "PIL" / "ImageDraw.py").write_text(
        "class ImageDraw:\n    def multiline_textbbox(self, at, text, font):\n        return font.getbbox(text)\n"
    )
    (tmp_path / "PIL" / "ImageFont.py").write_text(
        "class ImageFont:\n    def getbbox(self, text):\n        return 1, 2, 8 * len(text), 12\n\n"
        "class FreeTypeFont(ImageFont):\n    pass\n"
    )
    (tmp_path / "yaml.py").write_text("FullLoader = 'full'\ndef load(stream, Loader):\n    return stream, Loader\n")
    names = ("PIL", "PIL.Image", "PIL.ImageDraw", "PIL.ImageFont", "yaml")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    package_names.install()
    package_names.install()
    image, yaml = importlib.import_module("PIL.Image"), importlib.import_module("yaml")
    assert (image.ANTIALIAS, image.LINEAR, image.CUBIC) == (1, 2, 4)
    assert yaml.load("a") == ("a", "full") and yaml.load("a", Loader="base") == ("a", "base")
    draw, font = importlib.import_module("PIL.ImageDraw").ImageDraw(), importlib.import_module("PIL.ImageFont")
    assert draw.textsize("ab", font.FreeTypeFont()) == font.ImageFont().getsize("ab") == (15, 12)
    for name in names:
        del sys.modules[name]  # what was there before comes back


@pytest.mark.parametrize("before", [False, True])
def test_pyarrow_serializes_as_parl_expects(tmp_path, monkeypatch, before):
    """A stand-in without the names; PARL sets cloudpickle's functions and sends what ``to_buffer`` gives."""
    (tmp_path / "pyarrow.py").write_text("py_buffer = memoryview")
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if f is not later.Finder])
    if before:
        importlib.import_module("pyarrow")
    pyarrow_serialization.install()
    pyarrow = importlib.import_module("pyarrow")
    context = pyarrow.default_serialization_context()
    context.set_pickle(lambda value: b"p" + pickle.dumps(value), lambda data: pickle.loads(bytes(data)[1:]))
    context.register_type(object, "object", custom_serializer=str, custom_deserializer=str)
    sent = pyarrow.serialize([1, {"a": 2}], context=context).to_buffer()
    assert bytes(sent)[:1] == b"p" and pyarrow.deserialize(sent, context=context) == [1, {"a": 2}]
    assert pyarrow.deserialize(pyarrow.serialize(3).to_buffer()) == 3
    del sys.modules["pyarrow"]


def test_a_yaml_older_than_its_full_loader_is_left_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "yaml.py").write_text("def load(stream):\n    return stream\n")
    monkeypatch.delitem(sys.modules, "yaml", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    package_names.install()
    assert importlib.import_module("yaml").load("a") == "a"
    del sys.modules["yaml"]  # what was there before comes back


# --- modules of an old protoc --------------------------------------------------------------------------------------

STUB = """# -*- coding: utf-8 -*-
# Generated by the protocol buffer compiler.  DO NOT EDIT!
# source: {name}.proto

import sys
_b=sys.version_info[0]<3 and (lambda x:x) or (lambda x:x.encode('latin1'))
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf import reflection as _reflection
from google.protobuf import symbol_database as _symbol_database
from google.protobuf import descriptor_pb2
# @@protoc_insertion_point(imports)

_sym_db = _symbol_database.Default()
{imports}

DESCRIPTOR = _descriptor.FileDescriptor(
  name='{name}.proto',
  package='fluidjax.tests.legacy',
  syntax='proto2',
  serialized_pb={data})

_{upper} = _descriptor.Descriptor(
  name='{message}', full_name='fluidjax.tests.legacy.{message}', filename=None, file=DESCRIPTOR, containing_type=None,
  fields=[], extensions=[], nested_types=[], enum_types=[], options=None, is_extendable=False, syntax='proto2',
  extension_ranges=[], oneofs=[], serialized_start=1, serialized_end=2)

DESCRIPTOR.message_types_by_name['{message}'] = _{upper}
{message} = _reflection.GeneratedProtocolMessageType('{message}', (_message.Message,), dict(
  DESCRIPTOR = _{upper}, __module__ = '{name}_pb2'))
_sym_db.RegisterMessage({message})
"""


def described(name, message, fields, dependency=()):
    """A file with one message whose fields are (name, type, kind of default or message)."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="fluidjax.tests.legacy", syntax="proto2")
    file.dependency.extend(f"{other}.proto" for other in dependency)
    kind = file.message_type.add(name=message)
    for number, (field, type_, rest) in enumerate(fields, 1):
        kind.field.add(name=field, number=number, label=3, type=type_, **rest)
    return file.SerializeToString()


def write_stub(folder, name, message, data, imports=""):
    literal = f"_b({data.decode('latin1')!r})"
    text = STUB.format(name=name, message=message, upper=message.upper(), data=literal, imports=imports)
    (folder / f"{name}_pb2.py").write_text(text, encoding="utf-8")


@pytest.fixture
def stubs(tmp_path, monkeypatch):
    """Two modules of an old protoc, the second with a message of the first."""
    write_stub(tmp_path, "legacy_point", "Point", described("legacy_point", "Point", [("at", 2, {})]))
    field = ("points", 11, {"type_name": ".fluidjax.tests.legacy.Point"})
    line = described("legacy_line", "Line", [field, ("name", 9, {})], ["legacy_point"])
    write_stub(tmp_path, "legacy_line", "Line", line, "import legacy_point_pb2 as legacy__point__pb2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield tmp_path
    for name in ("legacy_point_pb2", "legacy_line_pb2"):
        sys.modules.pop(name, None)


def test_modules_of_an_old_protoc(stubs):
    protobuf_stubs.install()
    module = importlib.import_module("legacy_line_pb2")
    line = text_format.Parse("name: 'a' points { at: 1.5 at: 2.5 }", module.Line())
    again = module.Line.FromString(line.SerializeToString())
    assert again.name == ["a"] and list(again.points[0].at) == [1.5, 2.5]
    assert module.DESCRIPTOR.name == "legacy_line.proto" and module.legacy__point__pb2.Point is type(line.points.add())
    del sys.modules["legacy_line_pb2"]
    assert importlib.import_module("legacy_line_pb2").DESCRIPTOR is module.DESCRIPTOR
    assert not (stubs / "__pycache__").exists()


def test_newer_modules_are_left_alone(stubs):
    (stubs / "newer_pb2.py").write_text("_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'newer_pb2', _globals)")
    (stubs / "plain_pb2.py").write_text("VALUE = 1")
    assert protobuf_stubs.StubFinder.find_spec("newer_pb2", [str(stubs)]) is None
    assert protobuf_stubs.StubFinder.find_spec("legacy_point", [str(stubs)]) is None
    assert protobuf_stubs.StubFinder.find_spec("none_pb2", [str(stubs)]) is None
    protobuf_stubs.install()
    assert importlib.import_module("plain_pb2").VALUE == 1
    del sys.modules["plain_pb2"]


def test_what_is_taken_from_a_module():
    import ast

    def taken(text):
        return protobuf_stubs.serialized_file(ast.parse(text))

    assert taken(r"D = d.FileDescriptor(serialized_pb='\n\xff')") == b"\n\xff"
    assert taken(r"D = pool.Default().AddSerializedFile(b'\n\xff')") == b"\n\xff"
    assert taken("x = 1") is None and taken("D = d.FileDescriptor(serialized_pb=unknown)") is None


def test_the_module_fails_without_it(stubs):
    with pytest.raises(TypeError, match="cannot be created directly|duplicate file"):
        importlib.import_module("legacy_point_pb2")
