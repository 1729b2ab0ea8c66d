"""The values that Fluid 1.8.5 accepts for attributes of programs under construction, beyond their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol


class Domain(Protocol):
    """A set of values, and its description."""

    def __contains__(self, value: Any) -> bool: ...


class Between(NamedTuple):
    """Numbers from ``low`` to ``high``, inclusive; ``above`` excludes ``low`` itself."""

    low: float
    high: float = float("inf")
    above: bool = False

    def __contains__(self, value: Any) -> bool:
        return (value > self.low if self.above else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        lowest = f"above {self.low}" if self.above else f"at least {self.low}"
        return lowest if self.high == float("inf") else f"{lowest} and at most {self.high}"


class OneOf(tuple):
    """One of several values."""

    def __str__(self) -> str:
        return " or ".join(map(repr, self))


def _each(ops: str, attrs: str, domain: Domain) -> Iterable[tuple[tuple[str, str], Domain]]:
    return (((op, attr), domain) for op in ops.split() for attr in attrs.split())


_ACTIVATIONS = OneOf(("sigmoid", "tanh", "relu", "identity"))
_SMALL = Between(0.0, 0.0010000000474974513)  # 0.001 as float32
_BROADCASTS = (
    "elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min elementwise_mod"
    " elementwise_mul elementwise_pow elementwise_sub equal greater_equal greater_than less_equal less_than not_equal"
)
_QUANTIZERS = (
    "fake_channel_wise_quantize_abs_max fake_quantize_abs_max fake_quantize_dequantize_moving_average_abs_max"
    " fake_quantize_moving_average_abs_max fake_quantize_range_abs_max"
)
_POOLS = OneOf(("AVERAGE", "SUM", "SQRT", "LAST", "FIRST", "MAX"))

# By op and attribute, as determined by querying the ops' own checkers on both sides of each bound.
DOMAINS: Mapping[tuple[str, str], Domain] = {
    **dict(_each("lstm lstmp attention_lstm", "gate_activation cell_activation candidate_activation", _ACTIVATIONS)),
    ("lstmp", "proj_activation"): _ACTIVATIONS,
    **dict(_each("gru_unit", "activation gate_activation", OneOf((0, 1, 2, 3)))),
    **dict(_each("batch_norm inplace_abn data_norm instance_norm layer_norm", "epsilon", _SMALL)),
    ("maxout", "groups"): Between(2),  # by its shape inference
    **dict(_each(_BROADCASTS, "axis", Between(-1))),
    **dict(_each(_QUANTIZERS, "bit_length", Between(1, 16))),
    **dict(_each("lod_rank_table merge_lod_tensor split_lod_tensor", "level", Between(0))),
    **dict(_each("lrn", "k alpha beta", Between(0, above=True))),
    **dict(_each("mul", "x_num_col_dims y_num_col_dims", Between(1))),
    **dict(_each("pool2d pool3d", "pooling_type", OneOf(("max", "avg")))),
    **dict(_each("add_position_encoding", "alpha beta", Between(0))),
    ("bipartite_match", "match_type"): OneOf(("bipartite", "per_prediction")),
    ("box_coder", "axis"): OneOf((0, 1)),
    ("box_coder", "code_type"): OneOf(("encode_center_size", "decode_center_size")),
    ("broadcast", "root"): Between(0),
    ("dropout", "dropout_implementation"): OneOf(("downgrade_in_infer", "upscale_in_train")),
    ("dropout", "dropout_prob"): Between(0, 1),
    ("group_norm", "epsilon"): Between(0, 1),
    ("group_norm", "groups"): Between(1),
    ("kldiv_loss", "reduction"): OneOf(("mean", "sum", "batchmean", "none")),
    ("layer_norm", "begin_norm_axis"): Between(1),
    ("lrn", "n"): Between(1),
    ("mine_hard_examples", "mining_type"): OneOf(("max_negative", "hard_example")),
    ("pixel_shuffle", "upscale_factor"): Between(1),
    ("sequence_conv", "contextLength"): Between(1),
    ("sequence_enumerate", "win_size"): Between(2),
    ("sequence_pool", "pooltype"): _POOLS,
    ("shuffle_channel", "group"): Between(1),
    ("space_to_depth", "blocksize"): Between(2),
    ("top_k", "k"): Between(1),
    ("tree_conv", "max_depth"): Between(2),
    ("unstack", "num"): Between(1),
}
