"""``python -m tests.golden.doors [case ...]``: recorded networks' test programs through each way to predict.

Each is saved as an inference model. A predictor without passes, a clone of it, zero-copy tensors, ``to_jax``'s
function, a server and a predictor with all passes give what the Executor gives; the loaded program and its parameters
are written as the same bytes. Where a case has models that Paddle saved, they are taken too.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from fluidjax.core import AnalysisConfig, PaddleTensor, create_paddle_predictor
from fluidjax.export import ExportError, ragged, to_jax
from fluidjax.export.c.build import difference
from lowering.values import LoDArray
from tests.golden.c import job_of
from tests.golden.recordings import folder as recordings
from tests.golden.session import Session, lod_tensor
from tests.golden.values import Tensor
from tests.golden.zoocase import ZooCase, zoo_case, zoo_cases
from tests.serving.at_work import NPZ, ServedModel, Settings, packed, serving

TOLERANCE = 1e-6
# Filters that batch normalisation was folded into round otherwise; tests.golden.passes has the same.
FOLDED = 1e-5
LEVELS = 4  # of a LoD, at most

Feeds = dict[str, Tensor]
Found = list[tuple[np.ndarray, list[list[int]]]]


class Model:
    """A saved model, what is fed to it, and what the Executor gives."""

    def __init__(self, folder: str, parameters: str | None, feeds: Feeds):
        self.folder, self.parameters = folder, parameters
        self.session = Session()
        with fluid.scope_guard(self.session.scope):
            exe = self.session.executor
            loaded = fluid.io.load_inference_model(folder, exe, params_filename=parameters)
            self.program, self.names, self.targets = loaded
            self.differing = self._written_again()
            self.feeds = {name: feeds[name] for name in self.names}
            fed = {name: lod_tensor(value) for name, value in self.feeds.items()}
            values = exe.run(self.program, fed, self.targets, return_numpy=False)
        self.expected: Found = [(np.array(value), value.lod()) for value in values]

    def config(self, optimized: bool) -> AnalysisConfig:
        """Where the model is, and whether passes run."""
        files = [str(Path(self.folder) / name) for name in ("__model__", self.parameters or "")]
        config = AnalysisConfig(*files) if self.parameters else AnalysisConfig(self.folder)
        config.switch_ir_optim(optimized)
        return config

    def inputs(self) -> list[PaddleTensor]:
        """The feeds, in the model's order."""
        return [PaddleTensor(value.array, name, value.lod) for name, value in self.feeds.items()]

    # The doors.

    def predictor(self) -> Found:
        """Tensors in and out, as the model is."""
        return _read(create_paddle_predictor(self.config(False)).run(self.inputs()))

    def clone(self) -> Found:
        """A second predictor of the same model."""
        return _read(create_paddle_predictor(self.config(False)).clone().run(self.inputs()))

    def zero_copy(self) -> Found:
        """Inputs and outputs that stay with the predictor."""
        config = self.config(False)
        config.switch_use_feed_fetch_ops(False)
        predictor = create_paddle_predictor(config)
        for name, value in self.feeds.items():
            predictor.get_input_tensor(name).copy_from_cpu(value.array)
            predictor.get_input_tensor(name).set_lod(value.lod)
        predictor.zero_copy_run()
        outputs = [predictor.get_output_tensor(name) for name in predictor.get_output_names()]
        return [(output.copy_to_cpu(), output.lod()) for output in outputs]

    def passes(self) -> Found:
        """A predictor that ran its passes over the program."""
        return _read(create_paddle_predictor(self.config(True)).run(self.inputs()))

    def function(self) -> Found:
        """A function of parameters and inputs."""
        made, parameters = to_jax(self.program, self.names, self.targets, scope=self.session.scope)
        with jax.enable_x64(True):
            given = {n: ragged(v.array, _lengths(v.lod)) if v.lod else v.array for n, v in self.feeds.items()}
            outputs = jax.jit(made)(parameters, given, jax.random.key(0) if made.random else None)

        return [_plain(value) for value in outputs]

    def served(self) -> Found:
        """The answer of a server."""
        sent = {name: value.array for name, value in self.feeds.items()}
        sent |= {f"{n}.lod{i}": np.array(lod) for n, v in self.feeds.items() for i, lod in enumerate(v.lod)}
        limits = Settings(timeout=600, max_body=1 << 30)
        with serving(ServedModel(self.folder, None, self.parameters), limits, warm=False) as client:
            answer = client.ask("POST", "/predict", packed(sent), NPZ)
        if answer.status != 200:
            raise RuntimeError(answer.body.decode())
        arrays = answer.arrays
        lods = [[f"{target.name}.lod{i}" for i in range(LEVELS)] for target in self.targets]
        levels = [[arrays[name].tolist() for name in lod if name in arrays] for lod in lods]
        return [(arrays[target.name], lod) for target, lod in zip(self.targets, levels, strict=True)]

    def _written_again(self) -> list[str]:
        """What differs when the loaded model is written again: its program, and files of parameters."""
        given = _contents(Path(self.folder))
        with tempfile.TemporaryDirectory() as where, fluid.scope_guard(self.session.scope):
            fluid.io.save_persistables(self.session.executor, where, self.program, self.parameters)
            written = _contents(Path(where))
        written["__model__"] = self.program.desc.serialize_to_string()
        return sorted(name for name in {*given, *written} if given.get(name) != written.get(name))


_AS_IS = dict.fromkeys(("predictor", "clone", "zero_copy", "function", "served"), TOLERANCE)
DOORS = _AS_IS | {"passes": FOLDED}


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _lengths(lod: list[list[int]]) -> list[list[int]]:
    return [np.diff(level).tolist() for level in lod]


def _read(tensors: list[Any]) -> Found:
    return [(tensor.as_ndarray(), tensor.lod) for tensor in tensors]


def _plain(value: Any) -> tuple[np.ndarray, list[list[int]]]:
    if not isinstance(value, LoDArray):
        return np.asarray(value), []
    rows = None if value.nrows is None else int(value.nrows)
    return np.asarray(value.data[:rows]), [np.asarray(level).tolist() for level in value.lod]


def distance(found: Found, expected: Found) -> float:
    """The largest difference, relative to each output's largest element; inf where a shape or a LoD differs."""
    worst = 0.0
    for (array, lod), (want, levels) in zip(found, expected, strict=True):
        same = array.shape == want.shape and [list(level) for level in lod] == [list(level) for level in levels]
        # Tensors of predictors hold no float64: an AUC comes out as float32, as it does of Paddle's.
        array = array.astype(want.dtype) if want.dtype == np.float64 else array
        worst = max(worst, difference(array, want) if same else float("inf"))
    return worst


def models(case: ZooCase, where: str) -> Iterator[tuple[str, Model]]:
    """A case's models: those that Paddle saved, and its test program saved here."""
    for kind, parameters in (("inference", None), ("inference_combined", "__params__")):
        folder = case.path / "saved" / kind
        if folder.is_dir():
            yield kind, Model(str(folder), parameters, case.feeds(0))  # type: ignore[arg-type]
    job = job_of(case, "forward")
    if job is None:
        return
    raw, fetches, feeds = job
    session = Session()
    session.set(case.initial_values())
    program = fluid.Program.parse_from_string(raw).clone(for_test=True)
    targets = [program.global_block().var(name) for name in fetches]
    kept = program._prune(targets)
    read = {name for block in kept.blocks for op in block.ops for name in op.input_arg_names}
    named = [name for name in feeds if name in read]
    given = {name: value for name, value in feeds.items() if program.global_block().has_var(name)}
    session.run(program, given, fetches)  # some save what a run leaves
    with fluid.scope_guard(session.scope):
        fluid.io.save_inference_model(where, named, targets, session.executor, program, params_filename="params")
    yield "test", Model(where, "params", feeds)  # type: ignore[arg-type]


def check(model: Model, doors: dict[str, float] = DOORS) -> tuple[dict[str, float], list[str]]:
    """(door -> how far from the Executor, problems)."""
    found = {}
    for name in doors:
        with contextlib.suppress(ExportError):  # a function has no ops that work on the host
            found[name] = distance(getattr(model, name)(), model.expected)
    problems = [f"{name}: {apart:.1e}" for name, apart in found.items() if not apart <= doors[name]]
    return found, problems + [f"saved again, {name} differs" for name in model.differing]


def main() -> int:
    """Check and report; the exit status is 1 when a door differs, or none was tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.doors", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all")
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {recordings()}")
    failed = tried = 0
    for name in args.cases or zoo_cases():
        with tempfile.TemporaryDirectory() as where:
            try:
                for kind, model in models(zoo_case(name), where):
                    found, problems = check(model)
                    failed, tried = failed + bool(problems), tried + 1
                    said = ", ".join(f"{door} {apart:.1e}" for door, apart in found.items())
                    print(
                        f"{'FAIL' if problems else 'ok  '}  {name} {kind}: {said}",
                        *problems,
                        sep="\n        ",
                        flush=True,
                    )
            except Exception as error:  # noqa: BLE001  (the next network may be fine)
                failed += 1
                print(f"FAIL  {name}: {type(error).__name__} {' '.join(str(error).split())[:300]}", flush=True)
        jax.clear_caches()
    print(f"{tried} models, {failed} differ")
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
