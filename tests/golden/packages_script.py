"""Asks one published package or model: ``packages_script.py KIND ROOT SENTENCES RESULT``; see ``packages.py``.

Runs under Paddle itself (Python 3.7, too) and by ``fluidjax run``.
"""

import json
import sys

import numpy as np

SHAPES = {"det": (1, 3, 64, 96), "rec": (1, 3, 48, 96), "cls": (2, 3, 48, 192)}
FOLDERS = {
    "det": "ch_PP-OCRv4_det_infer",
    "rec": "ch_PP-OCRv4_rec_infer",
    "cls": "ch_ppocr_mobile_v2_cls_infer",
}
LARGEST = 2000


def _lac(mode, sentences):
    from LAC import LAC

    found = LAC(mode=mode).run(sentences)
    if mode == "lac":
        return [" ".join(word + "/" + tag for word, tag in zip(*one)) for one in found]  # noqa: B905
    return [" ".join(one) for one in found]


def _jieba(tags, sentences):
    import jieba
    from jieba import posseg

    jieba.enable_paddle()
    if tags:
        return [" ".join(str(pair) for pair in posseg.lcut(text, use_paddle=True)) for text in sentences]
    return [" ".join(jieba.lcut(text, use_paddle=True)) for text in sentences]


def _image(kind, root):
    """Every n-th output, so that there are about 2,000."""
    import paddle

    folder = root + "/" + FOLDERS[kind]
    if hasattr(paddle, "fluid"):
        executor = paddle.fluid.Executor(paddle.fluid.CPUPlace())
        load, place = (
            paddle.fluid.io.load_inference_model,
            (folder, executor, "inference.pdmodel", "inference.pdiparams"),
        )
    else:
        paddle.enable_static()
        executor = paddle.static.Executor(paddle.CPUPlace())
        load, place = paddle.static.load_inference_model, (folder + "/inference", executor)
    program, feeds, fetches = load(*place)
    image = np.random.RandomState(0).uniform(0.7, 1, SHAPES[kind]).astype("float32")
    for i in range(8):  # strokes, as of a line of text
        image[..., 16:32, 8 + 9 * i : 11 + 9 * i] = -0.8
        image[..., 16 + 4 * (i % 4) : 20 + 4 * (i % 4), 8 + 9 * i : 15 + 9 * i] = -0.8
    (out,) = executor.run(program, feed={feeds[0]: image}, fetch_list=fetches)
    out = np.asarray(out)
    return {"shape": list(out.shape), "part": out.ravel()[:: 1 + out.size // LARGEST].astype(float).tolist()}


def main(kind, root, sentences, result):
    """Write what the package gives as JSON."""
    sys.path.insert(0, root)
    with open(sentences, encoding="utf-8") as file:
        texts = json.load(file)
    if kind in SHAPES:
        found = _image(kind, root)
    elif kind.startswith("lac"):
        found = _lac("seg" if kind == "lac seg" else "lac", texts)
    else:
        found = _jieba(kind == "jieba tags", texts)
    with open(result, "w", encoding="utf-8") as file:
        file.write(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
