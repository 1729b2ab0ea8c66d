"""``fluidjax serve MODEL``: serves a saved model over HTTP, with a page to try it.

POST /predict takes {"inputs": {name: nested lists}} or an .npz, and answers in the same format; concurrent requests are
batched if samples are independent. GET / is the page, /model the model's inputs and outputs, /health its readiness,
/metrics statistics for Prometheus, /openapi.json a description for client generators. Ctrl-C stops the server once
pending requests are done.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from typing import Any

from fluidjax.command import models
from fluidjax.command.samples import add_shape
from fluidjax.command.terms import BadUse, table
from fluidjax.execution.rooms.recompilations import RecompilationWarning

NAME, HELP = "serve", "serve a model over HTTP, with a page to try it"
# Installed with the extra `serve`.
_PACKAGES = ("starlette", "uvicorn", "prometheus_client")
_TOKEN = "FLUIDJAX_SERVE_TOKEN"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, or its program file")
    parser.add_argument("--params", metavar="FILE", help="name of the combined parameter file")
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default %(default)s: this machine only)"
    )
    parser.add_argument("--port", type=_port, default=8000, metavar="N", help="default %(default)s; 0: any free port")
    parser.add_argument(
        "--token", default=os.environ.get(_TOKEN, ""), help=f"token required of requests (default ${_TOKEN})"
    )
    add_shape(parser, "shape of an input with unknown dimensions, for warming up")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-batch",
        type=_count,
        default=32,
        metavar="N",
        help="maximum number of samples per batch (default %(default)s)",
    )
    limits.add_argument(
        "--max-delay",
        type=_positive,
        default=2.0,
        metavar="MS",
        help="time to wait for further requests (default %(default)s ms)",
    )
    limits.add_argument(
        "--max-body", type=_positive, default=16.0, metavar="MB", help="maximum size of a request (default %(default)s)"
    )
    limits.add_argument(
        "--timeout", type=_positive, default=30.0, metavar="S", help="time limit of a request (default %(default)s)"
    )
    limits.add_argument(
        "--queue",
        type=_count,
        default=128,
        metavar="N",
        help="maximum number of concurrent requests (default %(default)s)",
    )


def _port(word: str) -> int:
    number = int(word)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{word} is not a port, 0 to 65535")
    return number


def _count(word: str) -> int:
    number = int(word)
    if not 0 < number < 1 << 20:
        raise argparse.ArgumentTypeError(f"{word} is not a number from 1 to {(1 << 20) - 1}")
    return number


def _positive(word: str) -> float:
    number = float(word)
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"{word} is not a number from 0 to 1000000")
    return number


def main(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    path = models.find(options.model, options.params)
    parts = {name: _needed(f"fluidjax.serving.{name}") for name in ("settings", "model", "server")}
    settings = parts["settings"].Settings(
        max_batch=options.max_batch,
        max_delay=options.max_delay / 1e3,
        max_body=int(options.max_body * 1e6),
        timeout=options.timeout,
        queue=options.queue,
        token=options.token,
        shapes=dict(options.shape),
    )
    model = parts["model"].ServedModel(path.folder, path.program, path.parameters)
    server = parts["server"].Server(model, settings, options.host, options.port)
    print(f"{model.name} at {server.url}")
    print(table((var.name, var.in_words()) for var in model.inputs.values()), flush=True)
    if not options.token and options.host not in ("127.0.0.1", "::1", "localhost"):
        print("fluidjax serve: whoever reaches this address may use it; --token asks for a word", file=sys.stderr)
    warnings.simplefilter("ignore", RecompilationWarning)  # the sizes are those of the requests
    server.run(warm=lambda: _say_ready(server))
    return 0


def _say_ready(server: Any) -> None:
    alone = f"; each request is run alone: {server.alone}" if server.alone else ""
    print(f"ready{alone}", flush=True)


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise BadUse(
            f"serving needs the package {error.name}", "it installed", "it is not", "pip install 'fluidjax[serve]'"
        ) from error
