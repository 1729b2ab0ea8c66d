"""A fleet job that goes on from its last saved model when it is started again; the launcher says who this process is.

``python tests/distributed/fleet_script.py FOLDER MODE STEPS [WHO STEP [SECONDS]]``: saves every third step; WHO is
killed once: after trainer 0 has done that step and waits there, or that many seconds later while it goes on. Trainers
write the loss of each step to FOLDER, all their process ids.
"""

import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np

import fluidjax as fluid
from fluidjax.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import StrategyFactory, fleet

FOLDER, MODE, STEPS, FATE = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]


def parameter(name, value):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(value))


def batch(step, trainer):
    ids = np.random.RandomState(100 * trainer + step).randint(0, 40, (4, 1)).astype("int64")
    return {"ids": ids, "y": ids.astype("float32") / 40}


def saved():
    """The steps after which a whole model was saved."""
    return sorted(int(path.name) for path in (FOLDER / "models").glob("*") if path.name.isdigit())


def save(step):
    part = FOLDER / "models" / f"{step}.part"
    fleet.save_persistables(exe, str(part))
    part.rename(FOLDER / "models" / str(step))


def reached(step):
    """Whether trainer 0 has done a step."""
    losses = FOLDER / "trainer_0"
    return losses.exists() and f"\n{step} " in "\n" + losses.read_text()


def die_in_time():
    while not reached(int(FATE[1])):
        time.sleep(0.01)
    time.sleep(sum(map(float, FATE[2:])))
    (FOLDER / "died").touch()
    os.kill(os.getpid(), signal.SIGKILL)


fleet.init(PaddleCloudRoleMaker())
me = f"trainer_{fleet.worker_index()}" if fleet.is_worker() else f"server_{fleet.server_index()}"
with open(FOLDER / "pids", "a") as file:
    file.write(f"{me} {os.getpid()}\n")
if FATE and FATE[0] == me and not (FOLDER / "died").exists():
    threading.Thread(target=die_in_time, daemon=True).start()

ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
rows = fluid.layers.embedding(ids, [40, 8], is_sparse=True, param_attr=parameter("table", 0.3))
out = fluid.layers.fc(rows, 1, param_attr=parameter("w", 0.5), bias_attr=parameter("b", 0.0))
loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
strategy = getattr(StrategyFactory, f"create_{MODE}_strategy")(*([2] if MODE == "geo" else []))
fleet.distributed_optimizer(fluid.optimizer.SGD(0.05), strategy).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
done = max(saved(), default=0)
if fleet.is_server():
    fleet.init_server(str(FOLDER / "models" / str(done)) if done else None)
    fleet.run_server()
    sys.exit()

fleet.init_worker()
exe.run(fleet.startup_program)
with open(FOLDER / me, "a") as file:
    for step in range(done + 1, STEPS + 1):
        (value,) = exe.run(fleet.main_program, feed=batch(step, fleet.worker_index()), fetch_list=[loss.name])
        file.write(f"{step} {float(value[0])!r}\n")
        file.flush()
        if step % 3 == 0 and fleet.is_first_worker():
            save(step)
        time.sleep(float(os.environ.get("PAUSE", "0")))
        while len(FATE) == 2 and step == int(FATE[1]) and not (FOLDER / "died").exists():
            time.sleep(0.01)
fleet.stop_worker()
