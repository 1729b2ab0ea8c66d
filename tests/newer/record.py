"""Records what Paddle 2.6 makes of the cases: its programs, and what they compute.

Run with Paddle's own Python: ``python -m tests.newer.record FILE``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import paddle
from paddle.base.proto import framework_pb2 as pb

from tests.newer import store
from tests.newer.cases import CASES

FLOATS = ("float32", "float64")


def record(fn: Any, feeds: dict[str, np.ndarray], grad: bool) -> dict[str, Any]:
    """The program's bytes, its parameters and fetched values, by key."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        main.random_seed = startup.random_seed = 7
        inputs = {}
        for name, value in feeds.items():
            inputs[name] = paddle.static.data(name, value.shape, str(value.dtype))
            inputs[name].stop_gradient = str(value.dtype) not in FLOATS
        outs = fn(paddle, *inputs.values())
        outs = _flat(outs)
        weights = {}
        if grad:
            weights = _gradients(outs, inputs, feeds)
    exe, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        exe.run(startup)
        _warm(exe, main, feeds)
        held = {
            v.name: np.array(scope.find_var(v.name).get_tensor())
            for v in main.list_vars()
            if v.persistable and v.name not in ("feed", "fetch") and scope.find_var(v.name) is not None
        }
        names = [o.name for o in outs] + [v for v in weights.pop("fetch", [])]
        fetched = exe.run(main, feed={**feeds, **weights}, fetch_list=names, return_numpy=False)
        fetched = [np.asarray(value) for value in fetched]
    result = {"program": np.frombuffer(_bytes(main), np.uint8), "names": np.array(" ".join(names))}
    result |= {f"feed/{k}": v for k, v in {**feeds, **weights}.items()}
    result |= {f"held/{k}": v for k, v in held.items()}
    return result | {f"out/{i}": v for i, v in enumerate(fetched)}


def _warm(exe: Any, main: Any, feeds: dict) -> None:
    """Two steps of a program that trains, so that what its optimizer keeps is not zero."""
    if any("LearningRate" in op.input_names for op in main.global_block().ops):
        exe.run(main, feed=feeds)
        exe.run(main, feed=feeds)


def _flat(outs: Any) -> list:
    if not isinstance(outs, (list, tuple)):
        return [outs]
    return [leaf for part in outs if part is not None for leaf in _flat(part)]


def _gradients(outs: list, inputs: dict, feeds: dict) -> dict[str, Any]:
    """Adds the gradients of the outputs, weighted by random numbers, to the program; returns the weights."""
    targets = [o for o in outs if str(o.dtype).rsplit(".", 1)[-1] in FLOATS]
    weights, given = {}, []
    for i, out in enumerate(targets):
        shape = _shape(out, feeds)
        weights[f"w{i}"] = np.round(np.random.RandomState(9 + i).uniform(-1, 1, shape), 2).astype("float32")
        given.append(paddle.static.data(f"w{i}", out.shape, "float32"))
    wanted = [v for v in inputs.values() if not v.stop_gradient]
    grads = paddle.static.gradients(targets, wanted, target_gradients=given)
    return {**weights, "fetch": [g.name for g in grads if g is not None]}


def _shape(out: Any, feeds: dict) -> list[int]:
    """The shape that ``out`` has; one with unknown dims is asked of a run."""
    if all(n >= 0 for n in out.shape):
        return list(out.shape)
    exe = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        return list(exe.run(out.block.program, feed=feeds, fetch_list=[out])[0].shape)


def _bytes(program: Any) -> bytes:
    message = pb.ProgramDesc.FromString(program.desc.serialize_to_string())
    message.version.version = 2006002
    for block in message.blocks:
        for op in block.ops:
            kept = [a for a in op.attrs if a.name not in ("op_callstack", "op_namescope", "op_device")]
            del op.attrs[:]
            op.attrs.extend(kept)
    return message.SerializeToString()


def main() -> None:
    """Record all cases, or those whose names follow the file's."""
    paddle.enable_static()
    found = {}
    for name, (fn, feeds, grad) in CASES.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        try:
            found[name] = record(fn, feeds, grad)
        except Exception as error:  # told, and left out
            print(f"{name}: {type(error).__name__} {str(error).strip().splitlines()[-1][:200]}")
    store.write(sys.argv[1], {f"{name}|{k}": v for name, parts in found.items() for k, v in parts.items()})
    print(len(found), "recorded")


if __name__ == "__main__":
    main()
