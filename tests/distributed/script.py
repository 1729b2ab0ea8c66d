"""A script of a job: what it is, PADDLE_TRAINING_ROLE says, and NETWORK, what it trains.

Losses of trainers go to OUT, one a line.
"""

import os
import sys
import time

import numpy as np

import fluidjax as fluid

ROLE, OUT, MODE = os.environ["PADDLE_TRAINING_ROLE"], os.environ["OUT"], os.environ.get("MODE", "sync")
ENDPOINTS = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"]
TRAINERS, STEPS = int(os.environ["PADDLE_TRAINERS_NUM"]), int(os.environ.get("STEPS", "5"))
NUMBER, ENDPOINT = int(os.environ.get("PADDLE_TRAINER_ID", "0")), os.environ.get("PADDLE_CURRENT_ENDPOINT", "")

NETWORK, SPARSE = os.environ.get("NETWORK", "regression"), os.environ.get("SPARSE", "1") == "1"


def batch(step, trainer):
    rng = np.random.RandomState(100 * trainer + step)
    ids = rng.randint(0, 40, (4, 1)).astype("int64")
    return {"ids": ids, "y": ids.astype("float32") / 40, "word": (ids * 7 + 3) % 40}


def parameter(name, value):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(value))


def regression(rows):
    out = fluid.layers.fc(rows, 1, param_attr=parameter("w", 0.2), bias_attr=parameter("b", 0.0))
    return fluid.layers.square_error_cost(out, fluid.data("y", [None, 1], "float32"))


def sampled(rows):
    own = {"param_attr": parameter("classes", 0.2), "bias_attr": parameter("b", 0.1), "is_sparse": SPARSE}
    return fluid.layers.nce(rows, fluid.data("word", [None, 1], "int64"), 40, num_neg_samples=3, **own)


ids = fluid.data("ids", [None, 1], "int64")
rows = fluid.layers.embedding(ids, [40, 8], is_sparse=True, param_attr=parameter("table", 0.3))
loss = fluid.layers.mean({"regression": regression, "sampled": sampled}[NETWORK](rows))
fluid.optimizer.SGD(0.1).minimize(loss)
for op in fluid.default_main_program().global_block().ops:
    if op.type.startswith("nce"):
        op._set_attr("custom_neg_classes", [1, 20, 39])  # the same for all frameworks
FED = [name for name in ("ids", "y", "word") if fluid.default_main_program().global_block().has_var(name)]
exe = fluid.Executor(fluid.CPUPlace())

if ROLE == "ALONE":
    exe.run(fluid.default_startup_program())
    with open(f"{OUT}/alone", "w") as file:
        for step in range(STEPS):
            both = [batch(step, trainer) for trainer in range(TRAINERS)]
            joined = {name: np.concatenate([b[name] for b in both]) for name in FED}
            file.write(f"{exe.run(feed=joined, fetch_list=[loss])[0][0]}\n")
    sys.exit()

config = fluid.DistributeTranspilerConfig()
config.sync_mode = MODE == "sync"
transpiler = fluid.DistributeTranspiler(config)
config.min_block_size = 16
transpiler.transpile(NUMBER, pservers=ENDPOINTS, trainers=TRAINERS, sync_mode=MODE == "sync", current_endpoint=ENDPOINT)
if ROLE == "PSERVER":
    main, startup = transpiler.get_pserver_programs(ENDPOINT)
    exe.run(startup)
    if os.path.isdir(f"{OUT}/model"):
        fluid.io.load_persistables(exe, f"{OUT}/model", main)
    exe.run(main)
    sys.exit()

main = transpiler.get_trainer_program()
exe.run(fluid.default_startup_program())
with open(f"{OUT}/trainer_{NUMBER}", "w") as file:
    for step in range(STEPS):
        given = batch(step, NUMBER)
        file.write(f"{exe.run(main, feed={name: given[name] for name in FED}, fetch_list=[loss])[0][0]}\n")
        file.flush()
        if NUMBER == 0 and step % 5 == 0:
            fluid.io.save_persistables(exe, f"{OUT}/model", main)
        time.sleep(float(os.environ.get("PAUSE", "0")))
exe.close()
