"""Trains with dropout and a shuffling reader, two processes or one; dies, or kills its launcher, once where told to.

``python -m fluidjax run tests/launching/train.py OUTPUT [STEP SIGNAL RANK [launcher]]``
"""

import os
import random
import signal
import sys
import time

import numpy as np

import fluidjax as fluid
from fluidjax import layers, recovery

OUTPUT, *FATE = sys.argv[1:]
RANK = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
ENDPOINTS = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "")

x, y = fluid.data("x", [None, 4], "float32"), fluid.data("y", [None, 1], "float32")
hidden = layers.dropout(layers.fc(x, 8, act="tanh"), 0.3)
loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1), y))
fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 7
fluid.optimizer.Adam(0.05).minimize(loss)
if "," in ENDPOINTS:
    config = fluid.DistributeTranspilerConfig()
    config.mode, config.collective_mode = "collective", "grad_allreduce"
    own = os.environ["PADDLE_CURRENT_ENDPOINT"]
    fluid.DistributeTranspiler(config).transpile(RANK, trainers=ENDPOINTS, current_endpoint=own)
executor = fluid.Executor(fluid.CPUPlace())
executor.run(fluid.default_startup_program())
random.seed(RANK)
np.random.seed(RANK)


def reader():
    order = list(range(6))
    random.shuffle(order)
    for number in order:
        data = np.random.RandomState(number).rand(5, 4).astype("float32")
        yield {"x": data + np.random.rand(5, 4).astype("float32") / 9, "y": data[:, :1]}


def die(step):
    marker = f"{OUTPUT}.died"
    if FATE and (step, RANK) == (int(FATE[0]), int(FATE[2])) and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getppid() if FATE[3:] else os.getpid(), getattr(signal, FATE[1]))
        time.sleep(600)  # until the launcher's end ends this process: a busy machine takes its time


for step, batch in enumerate(recovery.steps(executor, fluid.default_main_program(), reader, epochs=3, every=4)):
    executor.run(feed=batch, fetch_list=[loss])
    die(step)
print("steps", step + 1)
values = {p.name: np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in
          fluid.default_main_program().all_parameters()}  # fmt: skip
np.savez(f"{OUTPUT}.{RANK}.npz", **values)
