"""Small networks composed of several layers."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.base.errors import ArgumentError
from fluidjax.base.older import without
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Variable
from fluidjax.writing.checks import check_variable_and_dtype
from lowering.dtypes import to_numpy

__all__ = [
    "simple_img_conv_pool",
    "sequence_conv_pool",
    "glu",
    "scaled_dot_product_attention",
    "img_conv_group",
]


@without("fluid.nets", "use_mkldnn")
def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """``conv2d`` followed by ``pool2d``, for [N, C, H, W]; arguments as for the two layers."""
    conv = layers.conv2d(
        input=input,
        num_filters=num_filters,
        filter_size=filter_size,
        stride=conv_stride,
        padding=conv_padding,
        dilation=conv_dilation,
        groups=conv_groups,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        use_cudnn=use_cudnn,
    )
    return layers.pool2d(
        input=conv,
        pool_size=pool_size,
        pool_type=pool_type,
        pool_stride=pool_stride,
        pool_padding=pool_padding,
        global_pooling=global_pooling,
        use_cudnn=use_cudnn,
    )


def _per_conv(value: Any, count: int, name: str) -> list[Any]:
    """Expand ``value`` to one entry for each of ``count`` convolutions."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    assert len(value) == count, f"{name} has {len(value)} entries for {count} convolutions; give one, or {count}."
    return list(value)


@without("fluid.nets", "use_mkldnn")
def img_conv_group(
    input: Variable,
    conv_num_filter: Any,
    pool_size: Any,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: Any = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Several ``conv2d`` layers, each with optional ``batch_norm`` and ``dropout``, then one ``pool2d`` (a VGG block).

    Args:
        input: [N, C, H, W].
        conv_num_filter: a list or tuple with the number of filters of each convolution.
        conv_padding, conv_filter_size, param_attr, conv_with_batchnorm, conv_batchnorm_drop_rate: a single value, or
            one per convolution. With batch_norm, conv_act is applied after it.
    """
    assert isinstance(conv_num_filter, (list, tuple)), "conv_num_filter must be a list or tuple; pass [filters, ...]."
    count = len(conv_num_filter)
    paddings = _per_conv(conv_padding, count, "conv_padding")
    sizes = _per_conv(conv_filter_size, count, "conv_filter_size")
    attrs = _per_conv(param_attr, count, "param_attr")
    norms = _per_conv(conv_with_batchnorm, count, "conv_with_batchnorm")
    rates = _per_conv(conv_batchnorm_drop_rate, count, "conv_batchnorm_drop_rate")
    out = input
    for i, filters in enumerate(conv_num_filter):
        out = layers.conv2d(
            input=out,
            num_filters=filters,
            filter_size=sizes[i],
            padding=paddings[i],
            param_attr=attrs[i],
            act=None if norms[i] else conv_act,
            use_cudnn=use_cudnn,
        )
        if norms[i]:
            out = layers.batch_norm(input=out, act=conv_act)
            if abs(rates[i]) > 1e-5:
                out = layers.dropout(x=out, dropout_prob=rates[i])
    return layers.pool2d(
        input=out, pool_size=pool_size, pool_type=pool_type, pool_stride=pool_stride, use_cudnn=use_cudnn
    )


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """``sequence_conv`` followed by ``sequence_pool``, for rows [T, D] with LoD: [N, num_filters]."""
    conv = layers.sequence_conv(
        input=input,
        num_filters=num_filters,
        filter_size=filter_size,
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
    )
    return layers.sequence_pool(input=conv, pool_type=pool_type)


def glu(input: Variable, dim: int = -1) -> Variable:
    """Gated linear unit: a * sigmoid(b), where input is split into [a, b] along ``dim``."""
    a, b = layers.split(input, num_or_sections=2, dim=dim)
    return layers.elementwise_mul(x=a, y=layers.sigmoid(x=b))


def _check_attention(queries: Any, keys: Any, values: Any, num_heads: int) -> None:
    check_variable_and_dtype(queries, "queries", ("float32", "float64"), "scaled_dot_product_attention")
    for name, x in (("keys", keys), ("values", values)):
        check_variable_and_dtype(x, name, (str(to_numpy(queries.dtype)),), "scaled_dot_product_attention")
    if not (len(queries.shape) == len(keys.shape) == len(values.shape) == 3):
        raise ArgumentError(
            "Inputs queries, keys and values should all be 3-D tensors [N, length, width]; received"
            f" {queries.shape}, {keys.shape} and {values.shape}. Reshape them."
        )
    if queries.shape[-1] != keys.shape[-1]:
        raise ArgumentError(
            f"The hidden size of queries and keys should be the same, received {queries.shape[-1]} and"
            f" {keys.shape[-1]}. Project one of them."
        )
    if keys.shape[-2] != values.shape[-2]:
        raise ArgumentError(
            f"The max sequence length in value batch and in key batch should be the same, received {values.shape[-2]}"
            f" and {keys.shape[-2]}. Give one value for each key."
        )
    if keys.shape[-1] % num_heads != 0 or values.shape[-1] % num_heads != 0:
        raise ArgumentError(
            f"The hidden size of keys ({keys.shape[-1]}) and values ({values.shape[-1]}) must be divisible by the"
            f" number of attention heads ({num_heads}). Change one of them."
        )


def _split_heads(x: Variable, num_heads: int) -> Variable:
    """[N, length, width] to [N, heads, length, width / heads]."""
    if num_heads == 1:
        return x
    shaped = layers.reshape(x=x, shape=[*x.shape[:2], num_heads, x.shape[-1] // num_heads])
    return layers.transpose(x=shaped, perm=[0, 2, 1, 3])


def _join_heads(x: Variable) -> Variable:
    if len(x.shape) == 3:
        return x
    moved = layers.transpose(x, perm=[0, 2, 1, 3])
    return layers.reshape(x=moved, shape=[*moved.shape[:2], moved.shape[2] * moved.shape[3]])


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """Multi-head attention, softmax(Q K' / sqrt(head width)) V; with several heads, Q, K and V are projected first.

    Args:
        queries: [N, L_q, D]; keys: [N, L_k, D]; values: [N, L_k, D_v].
        dropout_rate: applied to the attention weights.

    Returns:
        [N, L_q, D_v]. Raises ValueError for incompatible shapes, TypeError for data types that differ.
    """
    _check_attention(queries, keys, values, num_heads)
    if num_heads > 1:
        queries, keys, values = (
            layers.fc(input=x, size=x.shape[-1], num_flatten_dims=2) for x in (queries, keys, values)
        )
    q, k, v = (_split_heads(x, num_heads) for x in (queries, keys, values))
    scaled = layers.scale(x=q, scale=(queries.shape[-1] // num_heads) ** -0.5)
    product = layers.matmul(x=scaled, y=k, transpose_y=True)
    flat = layers.reshape(x=product, shape=[-1, product.shape[-1]], act="softmax")
    weights = layers.reshape(x=flat, shape=product.shape)
    if dropout_rate:
        weights = layers.dropout(weights, dropout_prob=dropout_rate, is_test=False)
    return _join_heads(layers.matmul(weights, v))


__getattr__ = unknown_name(__name__)
