"""Loops, branches and recurrences, and their gradients.

A loop of Fluid is an op ``while`` with a block of ops; its gradient is an op ``while_grad`` with a block of gradient
ops that ``append_backward`` has written. Each becomes one ``lax.while_loop``. A small example, with a memory that
is kept in an array, as in a DynamicRNN::

    i = 0; hs[0] = h0; go = i < n     # block 0
    while go:                         # block 1                    block 2, its gradient, in reverse order
        h = hs[i]                     #   read_from_array          hs@GRAD[i] += h@GRAD
        a = mul(h, w)                 #   mul                      h@GRAD, w@GRAD = a@GRAD w^T, h^T a@GRAD
        s = tanh(a)                   #   tanh                     a@GRAD = s@GRAD (1 - s^2)
        i = i + 1                     #   increment                i = i - 1
        hs[i] = s                     #   write_to_array           s@GRAD = hs@GRAD[i]; hs@GRAD[i] = 0
        go = i < n                    #   less_than

**The forward loop** carries what the block writes and an outer block owns: ``i``, ``hs`` and ``go``
(``save_plan.outer_writes``). XLA requires one structure for a carry, so the step is traced until its result has the
structure of its argument (``settling``), and ``hs`` becomes one buffer [capacity, ...] (``arrays``). The
capacity is the number of steps plus one, if following ``i`` and ``go`` on the host tells it
(``save_plan.follow_trips``); otherwise it is a guess, a flag says whether it sufficed, and the executor doubles it.

**The residuals** are what block 2 reads of a step: ``h``, ``s`` and ``i`` (``save_plan.save_plan``). The obvious way is
to stack each on a leading [steps] axis. Here none needs to be:

- ``i`` is 1 + t at the end of step t (``facts.Affine``), as ``increment`` moves it by the same amount in every step.
- ``h`` is ``hs[t]`` and ``s`` is ``hs[t + 1]`` in the array that the loop leaves. Step t + k, k >= 0, writes
  ``hs[t + k + 1]``, which is never ``hs[t]``, and only step t itself writes ``hs[t + 1]`` (``Affine.meets``). So both
  elements are still live in the gradient, and their indices suffice (``saves.Reread``).
- ``w`` is not written in the loop: the gradient reads it from the outer environment, as the forward step did.
- A large value computed from smaller ones by cheap ops would be recomputed instead (``remake``).

So nothing is stacked for this loop; the step scopes contain instructions for finding each value of step t::

    >>> import jax, numpy as np, fluidjax as fluid
    >>> from fluidjax import layers
    >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
    ...     h0, w = fluid.data("h0", [1, 2]), fluid.data("w", [2, 2])
    ...     w.stop_gradient = False
    ...     i, n = (layers.fill_constant([1], "int64", k) for k in (0, 3))
    ...     hs = layers.array_write(h0, i)
    ...     go = layers.less_than(i, n)
    ...     with layers.While(go).block():
    ...         h = layers.array_read(hs, i)
    ...         a = layers.mul(h, w)
    ...         s = layers.tanh(a)
    ...         i = layers.increment(i)
    ...         hs = layers.array_write(s, i, hs)
    ...         go = layers.less_than(i, n, cond=go)
    ...     d_w = fluid.gradients(layers.mean(layers.array_read(hs, n)), w)
    >>> from fluidjax.framework.view import program_view
    >>> from lowering import run_block
    >>> program = program_view(h0.block.program)
    >>> scopes = next(op.outputs["StepScopes"][0] for op in program.blocks[0].ops if op.type == "while")
    >>> def step_scopes(h0, w):
    ...     return run_block(program, 0, {"h0": h0, "w": w})[scopes]
    >>> kept = jax.eval_shape(step_scopes, np.ones((1, 2), "float32"), np.ones((2, 2), "float32"))
    >>> kept.saved  # stacked on an axis of steps
    {}
    >>> meaning = {h.name: "h", i.name: "i", s.name: "s", hs.name: "hs"}
    >>> for name, how in kept.extra.items():
    ...     print(meaning[name], "=", str(how).replace(hs.name, "hs"))
    h = Reread(index=Affine(first=0, stride=1, dtype='int64', shape=(1,)), array='hs')
    i = Affine(first=1, stride=1, dtype='int64', shape=(1,))
    s = Reread(index=Affine(first=1, stride=1, dtype='int64', shape=(1,)), array='hs')

**The gradient loop** runs block 2 for t = steps - 1, ..., 0. It carries ``hs@GRAD``, which before step t holds the
contributions of the steps after t, and the rewound ``i``. ``w@GRAD`` is a sum over the steps. The loop does not carry
the sum, but stores the rows: h^T a@GRAD summed over the steps is one product of all rows of ``hs`` and ``a@GRAD`` after
the loop (``hoist``, ``contractions``). ``hs@GRAD`` needs no flags for elements already taken, because step t writes
``hs[t + 1]`` once and before anything reads it (``Facts.once``).

Before all that, what the steps compute of the rows of sequences alone moves out of the loop: one product of all rows in
front of it, and its gradients after it (``fission``, ``fission_heads``).

``branches`` does the same for ``conditional_block``, whose gradient needs one step's residuals at most, and
``recurrent`` for StaticRNN, whose steps ``lax.scan`` counts. ``ranks`` turns ragged sequences into arrays of steps
and back.
"""
