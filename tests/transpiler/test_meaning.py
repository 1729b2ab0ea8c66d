"""What blocks of servers compute is what one process computes: learning rates, updates by the mean gradient."""

import numpy as np
import pytest

import fluidjax as fluid

SERVERS = ["127.0.0.1:6170", "127.0.0.1:6171"]
TRAINERS = 2


def network(rate):
    """The programs after ``minimize``, and the learning rate's name."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        rate = rate()
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 64]), 300))
        fluid.optimizer.Adam(rate).minimize(loss)
    return main, startup, getattr(rate, "name", None)


def transpiled(main, startup, server):
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, program=main, startup_program=startup, pservers=",".join(SERVERS), trainers=TRAINERS)
    return transpiler.get_pserver_programs(server)


def alone(program, *blocks):
    """A program that runs the ops of some blocks of a server's program."""
    lifted = program.clone()
    first = lifted.global_block()
    first._remove_op(0)
    for number in blocks:
        for op in lifted.block(number).ops:
            slots = ({slot: op.input(slot) for slot in op.input_names}, {s: op.output(s) for s in op.output_names})
            first._append_op_desc(op.type, *slots, op.all_attrs(), like=op)
    return lifted


@pytest.mark.parametrize(
    "rate",
    [
        lambda: fluid.layers.noam_decay(100, 10),
        lambda: fluid.layers.piecewise_decay([2, 4], [0.1, 0.2, 0.3]),
        lambda: fluid.layers.linear_lr_warmup(0.1, 4, 0.01, 0.1),
    ],
    ids=["noam", "piecewise", "warmup"],
)
def test_learning_rates(rate):
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((2, 64), "float32")}
    main, startup, name = network(rate)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        wanted = [exe.run(main, feed=feed, fetch_list=[name])[0].item() for _ in range(6)]
    server, startup = transpiled(main, startup, SERVERS[0])
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        decay = alone(server, server.global_block().ops[0].attr("lr_decay_block_id"))
        assert [exe.run(decay, fetch_list=[name])[0].item() for _ in range(6)] == wanted
    assert len(set(wanted)) > 2


def test_updates(rng):
    """Two servers, two trainers, Adam: the parts of a parameter, joined, are the parameter of one process."""
    exe = fluid.Executor(fluid.CPUPlace())
    weight, shape = "fc_0.w_0", (64, 300)
    begin = rng.standard_normal(shape).astype("float32")
    grads = rng.standard_normal((3, TRAINERS, *shape)).astype("float32")
    parts = []
    for server in SERVERS:
        main, startup, _ = network(lambda: 0.1)
        program, startup = transpiled(main, startup, server)
        (name,) = (v for v in program.global_block().vars if v.startswith(f"{weight}.block"))
        rows = slice(0, 32) if name.endswith("0") else slice(32, 64)
        grad = name.replace(weight, f"{weight}@GRAD")
        table = dict(entry.rsplit(":", 1) for entry in program.global_block().ops[0].attr("grad_to_block_id"))
        update = alone(program, int(table[grad]))
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            fluid.global_scope().find_var(name).get_tensor().set(begin[rows], fluid.CPUPlace())
            for step in grads:
                feed = {f"{grad}.trainer_{number}": step[number][rows] for number in range(TRAINERS)}
                exe.run(update, feed=feed)
            parts.append((rows.start, np.array(fluid.global_scope().find_var(name).get_tensor())))
    whole = np.concatenate([part for _, part in sorted(parts, key=lambda part: part[0])])
    np.testing.assert_allclose(whole, adam(begin, grads.mean(axis=1)), rtol=1e-5, atol=1e-5)  # steps are 0.1


def adam(weight, grads, rate=0.1, beta1=0.9, beta2=0.999, epsilon=1e-8):
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step, grad in enumerate(grads, 1):
        first, second = beta1 * first + (1 - beta1) * grad, beta2 * second + (1 - beta2) * grad**2
        corrected = rate * np.sqrt(1 - beta2**step) / (1 - beta1**step)
        weight = weight - corrected * first / (np.sqrt(second) + epsilon)
    return weight
