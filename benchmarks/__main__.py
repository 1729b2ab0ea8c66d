"""``python -m benchmarks [model ...]``: time and work of a step, time to first step and peak memory of the peers.

Each peer runs in a process of its own, one after the other, ``--repeat`` times in turn; the best of each counts.

Time to first step runs from the start of building the model to the end of its first step. In Fluid that is building
the programs, shape inference and backward pass included, running the startup program, compiling and one step; in JAX
drawing the parameters, compiling and one step. Making the data counts for all, imports for none. fluidjax runs twice,
the second time (``warm``) with what the first compiled. The models named ``stream_...`` are whole runs instead: see
``benchmarks/stream.py``. Processes use the processors that this one may use (``taskset -c 0 python -m benchmarks``).

Paddle 1.8.5 takes part where a Python 3.7 that has it is found: the environment variable FLUIDJAX_PADDLE_PYTHON, or
``python3.7`` on the path; PyTorch, eager and compiled, where FLUIDJAX_TORCH_PYTHON or this Python has it.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from benchmarks import data, fluid_models, fluid_sequences, stream

ROOT = Path(__file__).parent.parent
STEPS = {
    "beam_search": 40,
    "while_rnn": 40,
    "while_rnn_64": 200,
    "while_rnn_short": 200,
    "while_rnn_long": 40,
    "fit_a_line": 10000,
    "mlp": 1000,
    "lenet": 90,
    "resnet20": 30,
    "word2vec_dense": 300,
    "word2vec_sparse": 300,
    "transformer": 90,
    "deepfm_sgd": 300,
    "deepfm_adam": 300,
}
BUILD = "build_1000_ops"
TORCH = (
    "fit_a_line",
    "mlp",
    "lenet",
    "resnet20",
    "word2vec_dense",
    "word2vec_sparse",
    "transformer",
    "deepfm_sgd",
    "deepfm_adam",
    "lstm_127",
    "lstm_256",
    "gru_256",
)


def found_python(variable: str, default: str | None, module: str) -> str | None:
    """A Python that can import a module, if there is one: that of an environment variable, or a default."""
    for candidate in (os.environ.get(variable), default):
        python = candidate and shutil.which(candidate)
        if python and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    return None


def found_pythons() -> dict[str, str]:
    """The Pythons of the peers that have one of their own."""
    paddle = found_python("FLUIDJAX_PADDLE_PYTHON", shutil.which("python3.7"), "paddle.fluid")
    torch = found_python("FLUIDJAX_TORCH_PYTHON", sys.executable, "torch")
    return {name: path for name, path in (("paddle", paddle), ("torch", torch)) if path}


@cache
def compile_sources() -> None:
    """Write the bytecode of what workers import, as installing a package does, whatever Python is told to write.

    Ops are imported when they are asked for first: without it a first step would compile their files.
    """
    for folder in ("fluidjax", "lowering", "benchmarks"):
        compileall.compile_dir(ROOT / folder, quiet=2)


def run(command: list[str], environment: dict[str, str] | None = None) -> dict[str, float] | str:
    """The measurement that a worker reports, or the last line of what it said instead."""
    compile_sources()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[len("RESULT ") :])
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[-1] if said else f"exit status {done.returncode}"


def peers(model: str, pythons: dict[str, str], limit: int | None) -> dict[str, list[str]]:
    """The command of each peer."""
    count = STEPS.get(model, fluid_sequences.STREAM)
    steps = str(count if limit is None else min(limit, count))
    found = {"fluidjax": [sys.executable, "-m", "benchmarks.fluid_worker", "fluidjax", model, steps]}
    if model != BUILD:
        found["jax"] = [sys.executable, "-m", "benchmarks.jax_worker", model, steps]
    if "torch" in pythons and model in TORCH:
        command = [pythons["torch"], "-m", "benchmarks.torch_worker", model, steps]
        found |= {"torch": command, "torch.compile": [*command, "compile"]}
    if "paddle" in pythons:
        found["paddle"] = [pythons["paddle"], "-m", "benchmarks.fluid_worker", "paddle", model, steps]
    return found


def cold_and_warm(command: list[str]) -> dict[str, float] | str:
    """fluidjax's measurement in an empty folder of compiled steps, with the first step of a second process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, stream.CACHE: folder}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        cold = run(command, environment)
        again = run([*command[:-1], "9"], environment)
    if isinstance(cold, str) or isinstance(again, str):
        return cold if isinstance(cold, str) else again
    return {**cold, "warm": again["first"], "warm_cpu": again["first_cpu"]}


def best(results: list[dict[str, float]]) -> dict[str, float]:
    """The smallest of each number; one that older measurements lack counts as it is."""
    return {key: min(r[key] for r in results if key in r) for key in results[0]}


def compare(model: str, pythons: dict[str, str], repeat: int, limit: int | None) -> dict[str, dict[str, float]]:
    """Run all peers of a model in turn and print the numbers and the ratios to fluidjax's peers."""
    if model in stream.MODELS:
        return stream.compare(model, pythons.get("paddle"), repeat, run, limit)
    commands = peers(model, pythons, limit)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            result = cold_and_warm(command) if name == "fluidjax" and model != BUILD else run(command)
            if isinstance(result, str):
                print(f"  {name} failed on {model}: {result}", flush=True)
            else:
                runs[name].append(result)
    found = {name: best(results) for name, results in runs.items() if results}
    show(model, found)
    return found


def show(model: str, found: dict[str, dict[str, float]]) -> None:
    """Print one model."""
    print(f"{model}")
    ours = found.get("fluidjax")
    for name, r in found.items():
        if "build" in r:
            text = f"built in {r['build']:.2f} s"
        else:
            text = f"step {1e6 * r['step']:10.0f} us   CPU {1e6 * r['cpu']:10.0f} us   first {r['first']:6.2f} s"
            text += f"   total {r['total']:6.1f} s   peak {r['peak']:6.0f} MB"
        if "warm" in r:
            text += f"   warm first {r['warm']:6.2f} s"
        if ours and name != "fluidjax":
            text += "   fluidjax/this: " + ", ".join(f"{k} {ours[k] / r[k]:.2f}" for k in r if k in ours)
        print(f"  {name:13s} {text}", flush=True)


def show_flatness(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print what a step of a long While RNN costs beside one of a short one, peer by peer."""
    short, long = (results.get(name, {}) for name in ("while_rnn_short", "while_rnn_long"))
    for peer in short.keys() & long.keys():
        cost = [
            r[peer]["step"] / data.RNNS[name][0] for r, name in ((short, "while_rnn_short"), (long, "while_rnn_long"))
        ]
        text = "cost of one of 50 loop steps {:.1f} us, of 800 {:.1f} us".format(*(1e6 * c for c in cost))
        print(f"  {peer:9s} {text}, ratio {cost[1] / cost[0]:.2f}", flush=True)


def main() -> None:
    """The command line."""
    known = [*fluid_models.MODELS, *fluid_sequences.MODELS, *stream.MODELS, BUILD]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--steps", type=int, help="at most so many timed steps of each model")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to FILE")
    args = parser.parse_args()
    pythons = found_pythons()
    print("peers: fluidjax, hand-written JAX" + "".join(f", {name} of {path}" for name, path in pythons.items()))
    results = {model: compare(model, pythons, args.repeat, args.steps) for model in args.models or known}
    show_flatness(results)
    if args.json:
        processors = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
        text = json.dumps({"machine": processors, "models": results}, indent=1)
        Path(args.json).write_text(text)


if __name__ == "__main__":
    main()
