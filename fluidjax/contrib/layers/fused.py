"""Contrib layers that fuse several ops into one."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.emit import emit_many

__all__ = ["fused_elemwise_activation", "multiclass_nms2", "search_pyramid_hash"]


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: str | list[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """unary(binary(x, y)) or binary(x, unary(y)), in the order of ``functor_list``.

    Args:
        x, y: of the same dtype; y is broadcast along ``axis`` of x.
        functor_list: two op types, or both in a comma-separated string: elementwise_add or elementwise_mul, and
            relu, tanh, sigmoid or scale.
        axis: the dimension of x at which the dimensions of y start.
        scale: factor of the functor ``scale``.
        save_intermediate_out: keep the inner result for the gradient.

    Returns:
        A Variable shaped like ``x``.

    Raises:
        ValueError: ``functor_list`` is not a list of two.
    """
    if isinstance(functor_list, str):
        functor_list = functor_list.split(",")
    if not isinstance(functor_list, list) or len(functor_list) != 2:
        raise ValueError(
            f"fused_elemwise_activation: functor_list must be a list of 2 op types, received {functor_list!r}. Pass for"
            " example ['elementwise_add', 'relu']."
        )
    attrs = {
        "axis": axis,
        "scale": scale,
        "save_intermediate_out": save_intermediate_out,
        "functor_list": functor_list,
    }
    outputs = [("Out", x.dtype, False), ("IntermediateOut", x.dtype, False)]
    return emit_many("fused_elemwise_activation", {"X": x, "Y": y}, outputs, attrs)[0]


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """``layers.multiclass_nms`` that can also return which boxes were kept.

    Args:
        return_index: also return the positions of the kept boxes in ``bboxes``. Other arguments as for
            ``layers.multiclass_nms``.

    Returns:
        [kept, 6] rows (label, score, box) with LoD by image; with ``return_index`` also int32 [kept, 1].
    """
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    outputs = [("Out", bboxes.dtype, True), ("Index", "int", True)]
    out, index = emit_many("multiclass_nms2", {"BBoxes": bboxes, "Scores": scores}, outputs, attrs, name=name)
    return (out, index) if return_index else out


def search_pyramid_hash(
    input: Variable,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: bool,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: Any = None,
    param_attr_wl: Any = None,
    param_attr_bl: Any = None,
    name: str | None = None,
    distribute_update_vars: list[str] | None = None,
    dtype: Any = "float32",
) -> Variable:
    """Embeddings of all n-grams of each sequence, n = 2 .. ``pyramid_layer``, hashed into one flat table.

    The table is updated by the op's own gradient, at rate ``lr``, rather than by an optimizer; as in Fluid, this
    requires ``stop_gradient`` of ``input`` to be False.

    Args:
        input: int32 ids [rows, 1] with LoD.
        num_emb: width of an embedding; each hash supplies ``rand_len`` of its elements.
        space_len: size of the hash space.
        drop_out_percent: fraction of the n-grams dropped during training (``is_training`` 1), using ``seed``; at test
            time, a factor applied to the embeddings.
        use_filter: filter n-grams by the white and black lists.
        white_list_len, black_list_len: sizes of the lists; no list if zero or negative.
        lr: learning rate of the table.
        param_attr, param_attr_wl, param_attr_bl: attributes of the table and the two lists, which are Bloom filters.
        distribute_update_vars: names of those that are updated remotely.

    Returns:
        [n-grams, num_emb] with LoD; a sequence without n-grams gives a row of zeros.

    Raises:
        ValueError: ``distribute_update_vars`` names none of the three.
    """
    helper = LayerHelper("search_pyramid_hash", name=name)
    columns = [("W", param_attr, space_len + rand_len)]
    columns += [("WhiteList", param_attr_wl, white_list_len)] if white_list_len > 0 else []
    columns += [("BlackList", param_attr_bl, black_list_len)] if black_list_len >= 0 else []
    tables = {slot: _fixed(helper, attr, length, dtype) for slot, attr, length in columns}
    sizes = {"num_emb": num_emb, "space_len": space_len, "pyramid_layer": pyramid_layer, "rand_len": rand_len}
    lists = {"use_filter": use_filter, "white_list_len": white_list_len, "black_list_len": black_list_len}
    training = {"drop_out_percent": drop_out_percent, "is_training": is_training, "seed": seed, "lr": lr}
    remote = _remote(distribute_update_vars, [param_attr, param_attr_wl, param_attr_bl])
    out, dropped, ids = (helper.create_variable_for_type_inference(dtype) for _ in range(3))
    helper.append_op(
        type="pyramid_hash",
        inputs={"X": input, **tables},
        outputs={"Out": out, "X_Temp_Out": ids, "DropPos": dropped},
        attrs=sizes | lists | training | {"distribute_update_vars": remote},
    )
    return out


def _fixed(helper: LayerHelper, attr: Any, length: int, dtype: Any) -> Variable:
    """A column vector of parameters ignored by the backward pass, since the op's own gradient updates it."""
    param = helper.create_parameter(attr=attr, shape=[length, 1], dtype=dtype, is_bias=False)
    assert param is not None
    param.stop_gradient = True
    return param


def _remote(names: list[str] | None, attrs: list[Any]) -> str:
    known = [attr.name for attr in attrs if attr]
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise ValueError(
            f"search_pyramid_hash: distribute_update_vars has {unknown[0]!r}, but the layer's named parameters are"
            f" {known}. Name the parameters by param_attr, param_attr_wl and param_attr_bl."
        )
    return ",".join(names or [])
