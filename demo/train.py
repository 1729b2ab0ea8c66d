"""Building, training and saving the net."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tqdm import tqdm

import fluidjax as fluid
from demo.data import digits

BATCH, EPOCHS = 32, 25


def network(image, label):
    """Two convolution-pool pairs and a softmax; returns prediction, mean loss and accuracy."""
    hidden = fluid.nets.simple_img_conv_pool(image, 16, 3, pool_size=2, pool_stride=2, conv_padding=1, act="relu")
    hidden = fluid.nets.simple_img_conv_pool(hidden, 32, 3, pool_size=2, pool_stride=2, conv_padding=1, act="relu")
    prediction = fluid.layers.fc(hidden, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    return prediction, loss, fluid.layers.accuracy(input=prediction, label=label)


def train(folder: Path, epochs: int = EPOCHS) -> float:
    """Train with a progress bar, save the inference model to ``folder``, return the test accuracy."""
    images, labels, test_images, test_labels = digits()
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup):
        image = fluid.data("image", [None, 1, 8, 8], "float32")
        label = fluid.data("label", [None, 1], "int64")
        prediction, loss, accuracy = network(image, label)
        test_program = main.clone(for_test=True)
        fluid.optimizer.Adam(learning_rate=2e-3).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        rng, steps = np.random.default_rng(1), len(images) // BATCH
        with tqdm(total=epochs * steps, desc="training", unit="step") as bar:
            for epoch in range(epochs):
                for rows in rng.permutation(len(images))[: steps * BATCH].reshape(steps, BATCH):
                    feed = {"image": images[rows], "label": labels[rows]}
                    value, hits = exe.run(main, feed=feed, fetch_list=[loss, accuracy])
                    shown = {"loss": f"{value.item():.3f}", "accuracy": f"{hits.item():.3f}"}
                    bar.set_postfix(epoch=epoch + 1, **shown, refresh=False)  # a line for each step floods a log
                    bar.update()
        feed = {"image": test_images, "label": test_labels}
        (hits,) = exe.run(test_program, feed=feed, fetch_list=[accuracy])
        fluid.io.save_inference_model(str(folder), ["image"], [prediction], exe, main_program=main)
    return hits.item()
