"""What is fetched of ragged batches that several devices share."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid


def test_accuracy_of_sequences_is_fetched_with_their_lod():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        scores, label = fluid.data("scores", [None, 3], lod_level=1), fluid.data("label", [None, 1], "int64")
        accuracy = fluid.layers.accuracy(fluid.layers.softmax(scores), label)
    exe = fluid.Executor(fluid.CPUPlace())
    several = fluid.CompiledProgram(main).with_data_parallel(places=[fluid.CPUPlace()])
    fed = fluid.create_lod_tensor(np.eye(3, dtype="float32"), [[2, 1]], fluid.CPUPlace())
    (got,) = exe.run(several, {"scores": fed, "label": np.array([[0], [1], [0]])}, [accuracy], return_numpy=False)
    np.testing.assert_allclose(np.array(got), [2 / 3], rtol=1e-6)
    assert got.recursive_sequence_lengths() == [[2, 1]]
