"""``python -m tools.golden_subset <recordings>``: choose the recordings that are kept with the tests.

A full recording folder is too large for the repository. Of each operator the smallest cases are kept, one or more of
each kind (forward, gradient), under a size budget; of the networks the ones listed in ``NETWORKS``.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import known

DATA = Path(__file__).parent.parent / "tests" / "golden" / "data"
CASES_PER_KIND = 2
CASE_BYTES = 24_000
ONLY_CASE_BYTES = 120_000
NETWORKS = (
    "book_fit_a_line",
    "book_recognize_digits_conv",
    "book_recognize_digits_mlp",
    "book_recommender_system",
    "book_t_label_semantic_roles",
    "book_t_machine_translation",
    "book_t_rnn_encoder_decoder",
    "book_t_understand_sentiment_conv",
    "book_t_understand_sentiment_dynrnn_lstm",
    "book_t_understand_sentiment_stacked_lstm",
    "book_t_word2vec_sparse",
    "book_understand_sentiment_dyn_rnn",
    "book_word2vec_sparse",
    "clip_error",
    "clip_value",
    "ctrl_dynamic_rnn_memory_init",
    "ctrl_ifelse",
    "cv_gan_dcgan",
    "cv_ocr_crnn_ctc",
    "lod_expand",
    "lod_pool_average",
    "lod_pool_sqrt",
    "lod_pool_sum",
    "lr_cosine",
    "lr_exponential_staircase",
    "lr_noam_lr",
    "lr_polynomial_cycle",
    "lr_warmup_const",
    "misc_tensor_ops",
    "nlp_sentiment_bow",
    "nlp_sentiment_cnn",
    "nlp_simnet_bow_pairwise",
    "opt_adadelta_dense",
    "opt_adagrad_sparse",
    "opt_adam_sparse",
    "opt_decayed_adagrad_dense",
    "opt_ema",
    "opt_ftrl_dense",
    "opt_lamb_sparse",
    "opt_lars_dense",
    "opt_momentum_dense",
    "opt_momentum_nesterov_sparse",
    "opt_momentum_sparse",
    "opt_parameter_list_no_grad_set",
    "opt_rmsprop_dense",
    "rec_gru4rec_bpr",
    "rec_ncf_neumf",
    "rec_word2vec_shuffle_batch",
    "rec_youtube_dnn",
    "reg_l1",
    "ut_RecurrentOpMultipleMemoryTest",
    "ut_RecurrentOpStopGradientTest",
    "ut_RecurrentOpSubBlockTest",
    "ut_RecurrentOpTest1",
    "ut_dist_mnist",
    "ut_ifelse_mnist",
    "w2v_hsigmoid",
    "w2v_hsigmoid_custom_sparse",
    "w2v_nce",
    "w2v_nce_log_uniform_sparse",
    "w2v_nce_sparse",
)


def array_keys(node: Any) -> set[str]:
    """The array keys that a case's record names."""
    if isinstance(node, dict):
        found = {v for k, v in node.items() if k in ("array", "rows", "program", "grad_program") and isinstance(v, str)}
        return found.union(*(array_keys(v) for v in node.values())) if node else found
    if isinstance(node, list):
        return set().union(*(array_keys(v) for v in node)) if node else set()
    return set()


def choose(cases: list[dict[str, Any]], sizes: dict[str, int]) -> list[dict[str, Any]]:
    """The smallest cases of each kind, and those of ``known``; where all are large, the smallest.

    None is larger than ONLY_CASE_BYTES.
    """
    cost = {c["id"]: sum(sizes[k] for k in array_keys(c)) for c in cases}
    kept: list[dict[str, Any]] = []
    for kind in ("output", "grad"):
        ranked = sorted((c for c in cases if c["kind"] == kind), key=lambda c: cost[c["id"]])
        kept += [c for c in ranked[:CASES_PER_KIND] if cost[c["id"]] <= CASE_BYTES]
    kept += [c for c in cases if c["id"] in known.OPS and c not in kept and cost[c["id"]] <= ONLY_CASE_BYTES]
    smallest = min(cases, key=lambda c: cost[c["id"]])
    return kept or ([smallest] if cost[smallest["id"]] <= ONLY_CASE_BYTES else [])


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An npz with LZMA compression and fixed time stamps, so that equal contents are equal files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue(), zipfile.ZIP_LZMA)


def copy_op(source: Path, target: Path) -> int:
    """Copy the chosen cases of one operator; returns how many."""
    with np.load(source, allow_pickle=False) as z:
        arrays = {k: z[k] for k in z.files}
    document = json.loads(arrays.pop("cases").tobytes().decode())
    document["cases"] = choose(document["cases"], {k: a.nbytes for k, a in arrays.items()})
    if not document["cases"]:
        return 0
    keys = array_keys(document["cases"])
    text = np.frombuffer(json.dumps(document, separators=(",", ":")).encode(), np.uint8)
    write(target, {"cases": text} | {k: arrays[k] for k in arrays if k in keys})
    return len(document["cases"])


def main() -> None:
    """Fill the data folder anew from a full recording folder."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden_subset", description=__doc__)
    parser.add_argument("recordings", type=Path, help="a folder with ops/ and zoo/")
    source = parser.parse_args().recordings
    shutil.rmtree(DATA, ignore_errors=True)
    (DATA / "ops").mkdir(parents=True)
    count = sum(copy_op(p, DATA / "ops" / p.name) for p in sorted((source / "ops").glob("*.npz")))
    for name in NETWORKS:
        shutil.copytree(source / "zoo" / name, DATA / "zoo" / name, copy_function=shutil.copyfile)
    size = sum(p.stat().st_size for p in DATA.rglob("*") if p.is_file())
    print(f"{count} operator cases, {len(NETWORKS)} networks, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
