"""``PYTHON beside_worker.py``: runs programs with Paddle itself, for ``tests.golden.beside``. Python 3.7.

Each line of the input names a folder that holds ``program`` (a serialized ProgramDesc, forward ops alone),
``values.npz`` (what is fed and what the scope holds) and ``run.json`` (names: fed, held, loss, wanted, stopped). The
loss and the gradients by what is wanted go to ``results.npz`` there; each program has a process of its own, as some
end it.
"""

import json
import os
import signal
import sys
import traceback

import numpy
import paddle.fluid as fluid

LIMIT = 60  # seconds for a program: some do not end


def run(folder):
    """Run one program."""
    with open(os.path.join(folder, "program"), "rb") as file:
        program = fluid.Program.parse_from_string(file.read())
    with open(os.path.join(folder, "run.json")) as file:
        told = json.load(file)
    values = numpy.load(os.path.join(folder, "values.npz"))
    place, scope, block = fluid.CPUPlace(), fluid.Scope(), program.global_block()
    with fluid.scope_guard(scope), fluid.program_guard(program):
        for name in told["held"]:
            scope.var(name).get_tensor().set(values[name], place)
        feed = {}
        for name, lengths in told["fed"].items():
            feed[name] = fluid.create_lod_tensor(values[name], lengths, place) if lengths else values[name]
        for at, name in told["stopped"]:
            program.block(at).var(name).stop_gradient = True
        for name in told["wanted"]:
            block.var(name).stop_gradient = False
        wanted = [block.var(name) for name in told["wanted"]]
        gradients = fluid.gradients([block.var(told["loss"])], wanted) if wanted else []
        fetches = {"loss": told["loss"]}
        fetches.update((told["wanted"][i], g) for i, g in enumerate(gradients) if g is not None)
        found = fluid.Executor(place).run(program, feed=feed, fetch_list=list(fetches.values()), return_numpy=False)
    numpy.savez(os.path.join(folder, "results.npz"), **{n: numpy.array(found[i]) for i, n in enumerate(fetches)})


def main():
    """Run what the input names, each in a child."""
    for line in sys.stdin:
        folder, child = line.strip(), os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            try:
                run(folder)
            except BaseException:
                with open(os.path.join(folder, "error"), "w") as file:
                    traceback.print_exc(file=file)
                os._exit(1)
            os._exit(0)
        print("ended", os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
