"""The ops of the padding tests, with inputs for each."""

from tests.lod.property import Case, Dense, Rows

_POOLS = ("SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST")
_RNN = {"Weight": Dense((4, 16)), "Input": Rows((16,))}
_GRU = {"Weight": Dense((4, 12)), "Input": Rows((12,))}
_PYRAMID = {"num_emb": 8, "space_len": 20, "rand_len": 4, "pyramid_layer": 3, "drop_out_percent": 0.5, "lr": 0.1}

CASES = [
    *(Case("sequence_pool", {"X": Rows()}, {"pooltype": p, "pad_value": 0.5}, p) for p in _POOLS),
    Case("sequence_softmax", {"X": Rows((1,))}),
    Case("sequence_expand", {"X": Dense(("n", 3)), "Y": Rows((1,))}),
    Case("sequence_expand_as", {"X": Dense(("n", 3)), "Y": Rows((1,))}),
    Case("sequence_concat", {"X": Rows()}),
    Case("sequence_reshape", {"X": Rows((4,))}, {"new_dim": 2}),
    Case("sequence_reverse", {"X": Rows()}),
    Case("sequence_scatter", {"X": Dense(("n", 6)), "Ids": Rows((1,), below=6), "Updates": Rows((1,))}),
    Case(
        "sequence_slice",
        {"X": Rows(), "Offset": Dense(("n", 1), like_lengths="a"), "Length": Dense(("n", 1), below=1)},
        ids="to-nothing",
    ),
    Case(
        "sequence_slice",
        {"X": Rows(), "Offset": Dense(("n", 1), below=1), "Length": Dense(("n", 1), like_lengths="a")},
    ),
    Case("sequence_erase", {"X": Rows((1,), below=4)}, {"tokens": [1, 2]}),
    Case("sequence_enumerate", {"X": Rows((1,), below=9)}, {"win_size": 3, "pad_value": 7}),
    Case("sequence_pad", {"X": Rows(), "PadValue": Dense((1,))}, {"padded_length": 11}),
    Case(
        "sequence_conv",
        {"X": Rows(), "Filter": Dense((9, 2))},
        {"contextLength": 3, "contextStart": -1},
    ),
    Case(
        "sequence_conv",
        {"X": Rows(), "Filter": Dense((12, 2)), "PaddingData": Dense((3, 3))},
        {"contextLength": 4, "contextStart": -2, "paddingTrainable": True},
        "trainable",
    ),
    Case("row_conv", {"X": Rows(), "Filter": Dense((3, 3))}),
    Case("add_position_encoding", {"X": Rows((4,))}, {"alpha": 0.5, "beta": 2.0}),
    Case("lod_reset", {"X": Rows(), "Y": Rows((1,), lod="b")}),
    Case("lstm", {**_RNN, "Bias": Dense((1, 28))}),
    Case(
        "lstm",
        {**_RNN, "Bias": Dense((1, 16)), "H0": Dense(("n", 4)), "C0": Dense(("n", 4))},
        {"use_peepholes": False, "is_reverse": True},
        "reverse",
    ),  # fmt: skip
    Case(
        "lstmp",
        {"Input": Rows((16,)), "Weight": Dense((3, 16)), "ProjWeight": Dense((4, 3)), "Bias": Dense((1, 28))},
        {"cell_clip": 1.0, "proj_clip": 0.5},
    ),  # fmt: skip
    Case("gru", _GRU),
    Case(
        "gru",
        {**_GRU, "Bias": Dense((1, 12)), "H0": Dense(("n", 4))},
        {"is_reverse": True, "origin_mode": True},
        "reverse",
    ),  # fmt: skip
    Case("linear_chain_crf", {"Emission": Rows((4,)), "Transition": Dense((6, 4)), "Label": Rows((1,), below=4)}),
    Case("crf_decoding", {"Emission": Rows((4,)), "Transition": Dense((6, 4))}),
    Case(
        "crf_decoding", {"Emission": Rows((4,)), "Transition": Dense((6, 4)), "Label": Rows((1,), below=4)}, ids="label"
    ),  # fmt: skip
    Case("warpctc", {"Logits": Rows((5,)), "Label": Rows((1,), lod="b", below=4)}, {"blank": 4}),
    Case("ctc_align", {"Input": Rows((1,), below=3)}, {"blank": 0}),
    Case("edit_distance", {"Hyps": Rows((1,), below=3), "Refs": Rows((1,), lod="b", below=3)}),
    Case("chunk_eval", {"Inference": Rows((1,), below=5), "Label": Rows((1,), below=5)}, {"num_chunk_types": 2}),
    Case("pyramid_hash", {"X": Rows((1,), below=9), "W": Dense((24, 1))}, _PYRAMID),
    Case("pyramid_hash", {"X": Rows((1,), below=9), "W": Dense((24, 1))}, _PYRAMID | {"is_training": 1}, "training"),
    Case("fused_embedding_seq_pool", {"W": Dense((7, 3)), "Ids": Rows((2, 1), below=7)}, {"padding_idx": 2}),
    Case(
        "fusion_seqconv_eltadd_relu",
        {"X": Rows(), "Filter": Dense((9, 2)), "Bias": Dense((1, 2))},
        {"contextLength": 3},
    ),  # fmt: skip
    Case("fusion_lstm", {"X": Rows(), "WeightX": Dense((3, 16)), "WeightH": Dense((4, 16)), "Bias": Dense((1, 28))}),
    Case("fusion_gru", {"X": Rows(), "WeightX": Dense((3, 12)), "WeightH": Dense((4, 12))}),
    Case(
        "attention_lstm",
        {
            "X": Rows(),
            "C0": Dense(("n", 4)),
            "AttentionWeight": Dense((7, 1)),
            "LSTMWeight": Dense((7, 16)),
            "LSTMBias": Dense((1, 16)),
        },
    ),  # fmt: skip
]
