"""Two detectors in small, whose numbers of regions and anchors differ from step to step.

Runs under Paddle 1.8.5 too, whose losses are recorded beside it: ``python detection_nets.py`` prints them.
"""

import json
import sys

import numpy as np

SIZE, STEPS, IMAGES = 32, 20, 2


def _anchors(layers, features, stride):
    return layers.anchor_generator(
        features,
        anchor_sizes=[2.0 * stride, 4.0 * stride],
        aspect_ratios=[0.5, 1.0],
        variance=[1.0, 1.0, 1.0, 1.0],
        stride=[stride, stride],
    )


def _rows(layers, maps, width):
    return layers.reshape(layers.transpose(maps, [0, 2, 3, 1]), [0, -1, width])


def faster_rcnn(fluid, image, info, boxes, classes, crowd):
    """Proposals, sampled regions over two levels of a feature pyramid, and the losses of both stages."""
    layers = fluid.layers
    fine = layers.conv2d(image, 8, 3, stride=4, padding=1, act="relu")
    coarse = layers.pool2d(fine, 2, "max", 2)
    anchor, variance = _anchors(layers, fine, 4.0)
    score, delta = layers.conv2d(fine, 4, 1), layers.conv2d(fine, 16, 1)
    rois, _ = layers.generate_proposals(
        layers.sigmoid(score), delta, info, anchor, variance, 40, 40, nms_thresh=0.6, min_size=1.0
    )
    rois, labels, target, inside, outside = layers.generate_proposal_labels(
        rois, classes, crowd, boxes, info, 64, 0.25, 0.5, 0.5, 0.0, [0.1, 0.1, 0.2, 0.2], 3, use_random=False
    )
    parts, order = layers.distribute_fpn_proposals(rois, min_level=2, max_level=3, refer_level=2, refer_scale=8)
    levels = [(fine, parts[0], 0.25), (coarse, parts[1], 0.125)]
    pooled = [layers.roi_align(maps, part, 2, 2, spatial_scale=scale, sampling_ratio=2) for maps, part, scale in levels]
    head = layers.fc(layers.gather(layers.concat(pooled), order, overwrite=False), 8, act="relu")
    labels = layers.cast(labels, "int64")
    labels.stop_gradient = True
    classed = layers.reduce_mean(layers.softmax_with_cross_entropy(layers.fc(head, 3), labels))
    boxed = layers.reduce_mean(layers.smooth_l1(layers.fc(head, 12), target, inside, outside, sigma=1.0))
    scores, places, wanted, moves, weight = layers.rpn_target_assign(
        _rows(layers, delta, 4),
        _rows(layers, score, 1),
        layers.reshape(anchor, [-1, 4]),
        layers.reshape(variance, [-1, 4]),
        boxes,
        crowd,
        info,
        rpn_batch_size_per_im=32,
        rpn_straddle_thresh=-1.0,
        rpn_positive_overlap=0.6,
        use_random=False,
    )
    wanted = layers.cast(wanted, "float32")
    wanted.stop_gradient = True
    seen = layers.reduce_mean(layers.sigmoid_cross_entropy_with_logits(scores, wanted))
    moved = layers.reduce_sum(layers.smooth_l1(places, moves, weight, weight, sigma=3.0))
    moved = moved / layers.reduce_prod(layers.cast(layers.shape(wanted), "float32"))
    return [classed + boxed + seen + moved, classed, boxed, seen, moved]


def retina_net(fluid, image, info, boxes, classes, crowd):
    """All anchors against the ground truth, with the focal loss."""
    layers = fluid.layers
    maps = layers.conv2d(image, 8, 3, stride=4, padding=1, act="relu")
    anchor, variance = _anchors(layers, maps, 4.0)
    score, delta = layers.conv2d(maps, 8, 1), layers.conv2d(maps, 16, 1)
    scores, places, label, moves, weight, count = layers.retinanet_target_assign(
        _rows(layers, delta, 4),
        _rows(layers, score, 2),
        layers.reshape(anchor, [-1, 4]),
        layers.reshape(variance, [-1, 4]),
        boxes,
        classes,
        crowd,
        info,
        num_classes=2,
        positive_overlap=0.5,
        negative_overlap=0.4,
    )
    count = layers.reduce_sum(count)
    focal = layers.reduce_sum(layers.sigmoid_focal_loss(scores, label, count))
    moved = layers.reduce_mean(layers.smooth_l1(places, moves, weight, weight, sigma=3.0))
    return [focal + moved, focal, moved]


NETS = {"faster_rcnn": faster_rcnn, "retina_net": retina_net}


def build(fluid, net):
    """The losses of a net, the sum first; the optimizer's ops are in the program."""
    image = fluid.data("image", [None, 3, SIZE, SIZE], "float32")
    info = fluid.data("info", [None, 3], "float32")
    boxes = fluid.data("boxes", [None, 4], "float32", lod_level=1)
    classes = fluid.data("classes", [None, 1], "int32", lod_level=1)
    crowd = fluid.data("crowd", [None, 1], "int32", lod_level=1)
    losses = NETS[net](fluid, image, info, boxes, classes, crowd)
    fluid.optimizer.SGD(learning_rate=0.01).minimize(losses[0])
    return losses


def feeds(fluid):
    """Two images a step with one to four boxes each."""
    rng = np.random.RandomState(3)
    for _ in range(STEPS):
        counts = rng.randint(1, 5, IMAGES).tolist()
        low, size = rng.uniform(0, 18, (sum(counts), 2)), rng.uniform(5, 13, (sum(counts), 2))
        ragged = {
            "boxes": np.concatenate([low, low + size], 1).astype("float32"),
            "classes": rng.randint(1, 3, (sum(counts), 1)).astype("int32"),
            "crowd": np.zeros((sum(counts), 1), "int32"),
        }
        feed = {n: fluid.create_lod_tensor(v, [counts], fluid.CPUPlace()) for n, v in ragged.items()}
        feed["image"] = rng.randn(IMAGES, 3, SIZE, SIZE).astype("float32")
        feed["info"] = np.array([[SIZE, SIZE, 1.0]] * IMAGES, "float32")
        yield feed


def train(fluid, net):
    """(the training program, the losses of each step), from parameters that do not depend on the framework."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        losses = build(fluid, net)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        rng = np.random.RandomState(5)
        for parameter in sorted(main.all_parameters(), key=lambda p: p.name):
            value = rng.uniform(-0.1, 0.1, parameter.shape).astype("float32")
            scope.find_var(parameter.name).get_tensor().set(value, fluid.CPUPlace())
        found = [exe.run(main, feed=feed, fetch_list=losses) for feed in feeds(fluid)]
    return main, [[float(np.asarray(v).reshape(-1)[0]) for v in step] for step in found]


if __name__ == "__main__":
    import paddle.fluid

    json.dump({net: train(paddle.fluid, net)[1] for net in NETS}, sys.stdout)
