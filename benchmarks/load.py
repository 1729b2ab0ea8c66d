"""A server under load: ``python -m benchmarks.load``: requests at a steady rate, whatever the answers take.

The server is a process of its own, ``fluidjax serve``; the requests come from this one, over kept connections. What a
request took is counted from when it was due, so that one that waits for its connection is not made to look short.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator

import numpy as np

import fluidjax as fluid


def save(folder: str, ragged: bool) -> None:
    """A small model: 13 numbers through two layers, or sequences of words through an embedding and a sum."""
    if ragged:
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        inputs, hidden = ["words"], fluid.layers.sequence_pool(fluid.layers.embedding(words, [5000, 64]), "sum")
    else:
        inputs, hidden = ["x"], fluid.data("x", [None, 13])
    hidden = fluid.layers.fc(hidden, 64, act="relu")
    prediction = fluid.layers.fc(hidden, 10, act="softmax")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.io.save_inference_model(folder, inputs, [prediction], executor)


def bodies(ragged: bool) -> list[bytes]:
    """Requests that differ; of sequences, in their lengths too."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(256):
        if ragged:
            made.append({"words": [rng.integers(0, 5000, rng.integers(1, 33)).tolist()]})
        else:
            made.append({"x": rng.standard_normal((1, 13)).round(3).tolist()})
    return [json.dumps({"inputs": inputs}).encode() for inputs in made]


@contextlib.contextmanager
def server(folder: str) -> Iterator[int]:
    """The port of a warm server."""
    command = [sys.executable, "-m", "fluidjax", "serve", folder, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        while process.stdout.readline().split()[:1] != ["ready"]:
            pass
        assert found is not None
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        print("the server's exit status:", process.wait(60))


async def load(port: int, requests: list[bytes], rate: float, seconds: float) -> tuple[Counter[str], list[float]]:
    """Statuses (or the names of errors), and the seconds that each answer took."""
    idle: asyncio.LifoQueue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.LifoQueue()
    statuses: Counter[str] = Counter()
    taken: list[float] = []

    async def one(body: bytes, due: float) -> None:
        try:
            pair = idle.get_nowait() if idle.qsize() else await asyncio.open_connection("127.0.0.1", port)
            reader, writer = pair
            writer.write(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            statuses[head.split()[1]] += 1
            taken.append(time.perf_counter() - due)
            idle.put_nowait(pair)
        except (OSError, EOFError) as error:
            statuses[type(error).__name__] += 1

    start, tasks = time.perf_counter(), []
    for at in range(int(rate * seconds)):
        due = start + at / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(requests[at % len(requests)], due)))
    await asyncio.gather(*tasks)
    while idle.qsize():
        idle.get_nowait()[1].close()
    return statuses, taken


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ragged", action="store_true", help="sequences of 1 to 32 words")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save(folder, options.ragged)
        with server(folder) as port:
            before = os.getloadavg()[0]
            statuses, taken = asyncio.run(load(port, bodies(options.ragged), options.rate, options.seconds))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                counts = dict(re.findall(r"^(\w+) (\S+)$", answer.read().decode(), re.M))
    runs = float(counts["fluidjax_batch_samples_count"])
    at = {f"p{share}": np.percentile(taken, share) for share in (50, 90, 99)} | {"longest": max(taken)}
    print(f"{options.rate:g} requests a second for {options.seconds:g} s: {dict(statuses)}")
    print(", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in at.items()))
    print(f"{runs:.0f} runs, {float(counts['fluidjax_batch_samples_sum']) / runs:.2f} samples each")
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
