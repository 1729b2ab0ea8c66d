"""``python -m benchmarks.servers_worker SYSTEM ROLE NUMBER ENDPOINTS FOLDER``: one process of a job with servers.

SYSTEM is fluidjax or paddle (this file runs under Python 3.7, too), ROLE server, trainer (of the click network) or
rows (pulls and pushes rows of a table of its own). Results are JSON files in FOLDER.
"""

import json
import os
import sys
import threading
import time

import numpy as np

from benchmarks.fluid_worker import system

ROWS, WARM, STEPS, IDS, WIDTH = 512, 10, 100, 4096, 32


def clicks(fluid, height=100001):
    """A wide and deep network over two sparse tables."""
    layers = fluid.layers

    def summed(name, width):
        ids = fluid.data(name, [None, 1], "int64", lod_level=1)
        table = fluid.ParamAttr(name=name + "_table", initializer=fluid.initializer.Constant(0.01))
        rows = layers.embedding(ids, [height, width], is_sparse=True, param_attr=table)
        return layers.sequence_pool(rows, "sum")

    label, hidden = fluid.data("click", [None, 1], "int64"), summed("deep", 16)
    for width in (128, 64, 32):
        hidden = layers.fc(hidden, width, act="relu")
    scores = layers.fc(layers.concat([hidden, summed("wide", 1)], 1), 2, act="softmax")
    return layers.mean(layers.cross_entropy(scores, label))


def batches(fluid, number):
    """Eight batches of a trainer."""
    draw = np.random.RandomState(number)

    def ragged(each):
        lod = fluid.LoDTensor()
        lod.set(draw.randint(0, 100000, (each * ROWS, 1)).astype("int64"), fluid.CPUPlace())
        lod.set_recursive_sequence_lengths([[each] * ROWS])
        return lod

    return [{"deep": ragged(3), "wide": ragged(2), "click": draw.randint(0, 2, (ROWS, 1))} for _ in range(8)]


def pulled(fluid, height=1000000):
    """A network whose only parameter is a table."""
    ids = fluid.data("ids", [None, 1], "int64")
    rows = fluid.layers.embedding(ids, [height, WIDTH], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
    return fluid.layers.mean(rows)


def write(folder, name, found):
    """Leave a result."""
    with open(os.path.join(folder, name), "w") as file:
        json.dump(found, file)


def wait_for(folder, name):
    """Wait for a file."""
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.02)


def watch(folder, number):
    """Measure this server's CPU time between two files; at a third one the process ends: Fluid's servers never do."""
    wait_for(folder, "begin")
    before = time.process_time()
    wait_for(folder, "end")
    write(folder, f"server_{number}", {"cpu": 1e3 * (time.process_time() - before) / STEPS})
    wait_for(folder, "stop")
    os._exit(0)


def measured(step):
    """Milliseconds of a step: median and best of wall time, mean of CPU time."""
    for i in range(WARM):
        step(i)
    yield "begin", None
    before, walls = time.process_time(), []
    for i in range(STEPS):
        begin = time.perf_counter()
        step(i)
        walls.append(1e3 * (time.perf_counter() - begin))
    cpu = 1e3 * (time.process_time() - before) / STEPS
    yield "end", {"wall": sorted(walls)[STEPS // 2], "best": min(walls), "cpu": cpu}


def traffic():
    """Bytes sent and received so far; None where nobody counts."""
    module = sys.modules.get("fluidjax.distributed.client")
    return None if module is None else (module.client.traffic.sent, module.client.traffic.received)


def main():
    """Play one role."""
    name, role, number, endpoints, folder = sys.argv[1:]
    fluid, number = system(name), int(number)
    alone = os.environ.get("NETWORK") == "rows"
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        loss = (pulled if alone else clicks)(fluid)
        fluid.optimizer.SGD(0.01).minimize(loss)
        config = fluid.DistributeTranspilerConfig()
        config.sync_mode = not alone
        transpiler = fluid.DistributeTranspiler(config)
        own = {"current_endpoint": endpoints.split(",")[number]} if role == "server" else {}
        transpiler.transpile(
            number, program=main, startup_program=startup, pservers=endpoints, trainers=1 if alone else 2,
            sync_mode=not alone, **own
        )  # fmt: skip
    exe = fluid.Executor(fluid.CPUPlace())
    if role == "server":
        main, startup = transpiler.get_pserver_programs(endpoints.split(",")[number])
        exe.run(startup)
        threading.Thread(target=watch, args=(folder, number), daemon=True).start()
        exe.run(main)
        wait_for(folder, "never")
    main = transpiler.get_trainer_program()
    exe.run(startup)
    if role == "rows":
        step = pull_and_push(endpoints.split(","))
    else:
        feeds = batches(fluid, number)

        def step(i):
            exe.run(main, feed=feeds[i % 8], fetch_list=[loss])

    before = None
    for moment, found in measured(step):
        if number == 0:
            write(folder, moment, None)
        if found is not None and before is not None:
            found["sent"], found["received"] = [(b - a) // STEPS for a, b in zip(before, traffic())]  # noqa: B905
        before = traffic()
    write(folder, f"trainer_{number}", found)
    exe.close()


def pull_and_push(endpoints):
    """A step that fetches rows of the table, and sends a gradient for them."""
    from fluidjax.distributed.client import client
    from lowering.values import SelectedRows

    draw, half = np.random.RandomState(0), 500000
    ids = [[np.sort(draw.choice(half, IDS // 2, replace=False)).astype("int64") for _ in endpoints] for _ in range(8)]
    tables = [f"table.block{i}" for i in range(len(endpoints))]
    gradients = [f"table@GRAD.block{i}" for i in range(len(endpoints))]

    def step(i):
        asked = [(e, tables[k], ids[i % 8][k]) for k, e in enumerate(endpoints)]
        rows = client.ask("PrefetchVariable", asked)
        sent = zip(endpoints, gradients, (SelectedRows(n, r, half) for (_, _, n), r in zip(asked, rows)))  # noqa: B905
        client.tell(sent)

    return step


if __name__ == "__main__":
    main()
