"""A small network, its data and compressions of it; run as a script, it records what Paddle 1.8.5 makes of them.

Paddle's clone orders parameters by a hash; with these names the first convolution comes first there, as it does here.
The code is of both: ``python compressed.py OUT`` under Paddle's Python 3.7 wrote ``data/compressor.json``.
"""

import json
import os
import pickle
import sys
import tempfile

import numpy as np

PRUNER = """
pruners:
  pruner:
    class: StructurePruner
    pruning_axis: {'*': 0}
    criterions: {'*': l1_norm}
controllers:
  annealing: {class: SAController, reduce_rate: 0.9, init_temperature: 1024, max_iter_number: 300}
"""
PRUNED = "pruner: pruner, pruned_params: 'conv.*_weights'"
# mode -> (strategies, epochs)
MODES = {
    "uniform": (PRUNER, "{class: UniformPruneStrategy, " + PRUNED + ", start_epoch: 0, target_ratio: 0.5}", 2),
    "sensitive": (
        PRUNER,
        "{class: SensitivePruneStrategy, " + PRUNED + ", start_epoch: 0, delta_rate: 0.2, target_ratio: 0.5,"
        " metric_name: loss, sensitivities_file: ./sensitivities.data, num_steps: 1}",
        2,
    ),
    "search": (
        PRUNER,
        "{class: AutoPruneStrategy, " + PRUNED + ", controller: annealing, start_epoch: 0, end_epoch: 3,"
        " min_ratio: 0.3, max_ratio: 0.7, uniform_range: 0.8, retrain_epoch: 0, metric_name: loss}",
        3,
    ),
    "distilled": (
        """
distillers:
  l2: {class: L2Distiller, teacher_feature_map: TEACHER_MAP, student_feature_map: MAP, distillation_loss_weight: 0.05}
  soft: {class: SoftLabelDistiller, student_temperature: 2.0, teacher_temperature: 3.0, student_feature_map: OUT,
    teacher_feature_map: TEACHER_OUT, distillation_loss_weight: 0.1}
  fsp: {class: FSPDistiller, teacher_pairs: [[TEACHER_MAP, TEACHER_MAP]], student_pairs: [[MAP, MAP]],
    distillation_loss_weight: 0.0001}
""",
        "{class: DistillationStrategy, distillers: [l2, soft, fsp], start_epoch: 0, end_epoch: 1}",
        2,
    ),
    "quantized": (
        "",
        "{class: QuantizationStrategy, start_epoch: 0, end_epoch: 1, float_model_save_path: ./float,"
        " int8_model_save_path: ./int8, mobile_model_save_path: ./mobile, weight_quantize_type: abs_max,"
        " activation_quantize_type: moving_average_abs_max, save_in_nodes: [image], save_out_nodes: [OUT]}",
        2,
    ),
    "searched": (
        PRUNER,
        "{class: LightNASStrategy, controller: annealing, target_flops: 60000, end_epoch: 3, metric_name: acc,"
        " server_ip: 127.0.0.1, is_server: true, search_steps: 2}",
        3,
    ),
}


MEASURED = {
    "conv_one_weights": {"pruned_percent": [0.2, 0.4, 0.6, 0.8], "loss": [0.01, 0.03, 0.1, 0.3], "size": 32},
    "conv_two_weights": {"pruned_percent": [0.2, 0.4, 0.6, 0.8], "loss": [0.02, 0.1, 0.25, 0.5], "size": 48},
}


def network(fluid, prefix="", width=32):
    """Two convolutions with a depthwise one between them, normalised; and a product."""
    layers = fluid.layers

    def named(name):
        return fluid.ParamAttr(name=prefix + name)

    def normalized(x, name):
        return layers.batch_norm(
            x,
            act="relu",
            param_attr=named(name + "_scale"),
            bias_attr=named(name + "_shift"),
            moving_mean_name=prefix + name + "_mean",
            moving_variance_name=prefix + name + "_variance",
        )

    image, label = layers.data("image", [1, 8, 8]), layers.data("label", [1], dtype="int64")
    hidden = layers.conv2d(
        image, width, 3, padding=1, param_attr=named("conv_one_weights"), bias_attr=named("conv_one_bias")
    )
    hidden = normalized(hidden, "norm1")
    filters = named("depth_weights")
    hidden = layers.conv2d(
        hidden, width, 3, padding=1, groups=width, use_cudnn=False, param_attr=filters, bias_attr=False
    )
    hidden = normalized(hidden, "norm2")
    filters, bias = named("conv_two_weights"), named("conv_two_bias")
    features = layers.conv2d(hidden, 48, 1, param_attr=filters, bias_attr=bias, act="relu")
    pooled = layers.pool2d(features, 2, pool_stride=2)
    out = layers.fc(pooled, 10, param_attr=named("fc_weights"), bias_attr=named("fc_bias"))
    guess = layers.softmax(out)
    loss, acc = layers.mean(layers.cross_entropy(guess, label)), layers.accuracy(guess, label)
    return {"MAP": features.name, "OUT": out.name, "loss": loss.name, "acc": acc.name}


def batches(count, seed):
    """A reader of batches of four images, whose bright row says the label."""

    def read():
        draws = np.random.RandomState(seed)
        for _ in range(count):
            labels = draws.randint(0, 10, 4)
            images = draws.rand(4, 1, 8, 8).astype("float32")
            for at in range(4):
                images[at, 0, labels[at] % 8] += labels[at] / 5.0
            yield [(images[at], labels[at : at + 1].astype("int64")) for at in range(4)]

    return read


def searched(fluid):
    """Networks of two convolutions with as many filters as tokens say."""

    class Space(fluid.contrib.slim.nas.SearchSpace):
        tried = []

        def init_tokens(self):
            return [2, 3]

        def range_table(self):
            return [6, 6]

        def create_net(self, tokens):
            self.tried.append(list(tokens))
            layers, constant = fluid.layers, fluid.initializer.Constant
            main, startup = fluid.Program(), fluid.Program()
            with fluid.program_guard(main, startup), fluid.unique_name.guard():
                image, label = layers.data("image", [1, 8, 8]), layers.data("label", [1], dtype="int64")
                hidden = layers.conv2d(image, tokens[0] + 1, 3, padding=1, param_attr=constant(0.1), act="relu")
                hidden = layers.conv2d(hidden, tokens[1] + 1, 3, padding=1, param_attr=constant(0.05))
                guess = layers.fc(hidden, 10, act="softmax", param_attr=constant(0.01))
                loss, acc = layers.mean(layers.cross_entropy(guess, label)), layers.accuracy(guess, label)
                test = main.clone(for_test=True)
                fluid.optimizer.SGD(0.05).minimize(loss)
            self.names = {"loss": loss.name, "acc": acc.name}
            return startup, main, test, (), (), batches(2, 1), batches(2, 9)

    return Space()


def fill(fluid, programs, scope):
    """Draw the persistable variables, in the order of their names."""
    draws = np.random.RandomState(7)
    found = {v.name: v for program in programs for v in program.list_vars() if v.persistable}
    for name in sorted(found.keys() - {"feed", "fetch"}):
        tensor = scope.find_var(name).get_tensor()
        drawn = draws.randn(*np.array(tensor).shape) * 0.3
        tensor.set((np.abs(drawn) + 0.5 if name.endswith("variance") else drawn).astype("float32"), fluid.CPUPlace())


def compressor(fluid, mode, folder, more=""):
    """The Compressor of a mode, configured; ``more`` settings of its own."""
    place, scope = fluid.CPUPlace(), fluid.global_scope()
    main, startup, teacher, begin = [fluid.Program() for _ in range(4)]
    with fluid.unique_name.guard("teacher_"), fluid.program_guard(teacher, begin):
        taught = network(fluid, "teacher_", 40)
    with fluid.program_guard(main, startup):
        names = network(fluid)
    exe = fluid.Executor(place)
    exe.run(startup)
    exe.run(begin)
    fill(fluid, (main, teacher), scope)
    rate = 0.0 if mode == "quantized" else 0.005  # training would multiply what rounding to 8 bits makes of a last bit
    test, space, optimizer = main.clone(for_test=True), None, fluid.optimizer.Momentum(rate, 0.9)
    if mode == "searched":
        space, optimizer = searched(fluid), None
        _, main, test = space.create_net([2, 3])[:3]
        names = dict(names, **space.names)
    head, strategy, epochs = MODES[mode]
    words = {"TEACHER_MAP": taught["MAP"], "TEACHER_OUT": taught["OUT"], "MAP": names["MAP"], "OUT": names["OUT"]}
    text = "version: 1.0\n" + head + "strategies:\n  only: " + strategy + "\n"
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    path = os.path.join(folder, "compress.yaml")
    with open(path, "w") as file:
        file.write(text + f"compressor:\n  epoch: {epochs}\n  strategies: [only]\n{more}")
    made = fluid.contrib.slim.core.Compressor(
        place,
        scope,
        main,
        train_reader=batches(2, 1),
        train_feed_list=[("image", "image"), ("label", "label")],
        train_fetch_list=[("loss", names["loss"])],
        eval_program=test,
        eval_reader=batches(2, 9),
        eval_feed_list=[("image", "image"), ("label", "label")],
        eval_fetch_list=[("acc", names["acc"]), ("loss", names["loss"])],
        teacher_programs=[teacher.clone(for_test=True)] if mode == "distilled" else [],
        train_optimizer=optimizer,
        distiller_optimizer=fluid.optimizer.Momentum(0.0001, 0.9),
        search_space=space,
    )
    made.config(path)
    if mode == "sensitive":  # measured elsewhere: Paddle's choice of ratios fails on losses that noise makes
        with open("sensitivities.data", "wb") as file:
            pickle.dump(MEASURED, file, protocol=2)
    np.random.seed(3)
    return made


def outcome(fluid, made):
    """What comes of a compression: metrics by epoch, operations, sizes, shapes and values."""
    graph = made.run()
    params = {p.name(): p for p in graph.all_parameters()}
    values = {n: np.array(fluid.global_scope().find_var(n).get_tensor()) for n in params}
    return {
        "metrics": {name: [float(v) for v in found] for name, found in made.context.eval_results.items()},
        "flops": [float(graph.flops()), float(graph.flops(only_conv=True))],
        "numbers": int(graph.numel_params()),
        "shapes": {name: list(p.shape()) for name, p in params.items()},
        "magnitudes": {name: float(np.abs(v.astype("float64")).sum()) for name, v in values.items()},
        "tried": getattr(made.search_space, "tried", []),
    }


def record(path):
    """Write the outcomes of all modes."""
    import paddle.fluid as fluid

    found = {}
    for mode in sorted(MODES):
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            found[mode] = outcome(fluid, compressor(fluid, mode, folder))
    with open(path, "w") as file:
        json.dump(found, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    record(os.path.abspath(sys.argv[1]))
