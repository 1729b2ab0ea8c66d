"""Beam search: a single step, and decoding of the result."""

from __future__ import annotations

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import FULL_FLOATS, check_variable_and_dtype


def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """Select, for each source, the ``beam_size`` best continuations of its beams.

    Args:
        pre_ids, pre_scores: LoD Variables [beams, 1], int64 and float32: the selection of the previous step.
        ids: int64 Variable [beams, K] of candidates; None for 0 .. K-1.
        scores: float32 LoD Variable [beams, K] of the candidates.
        beam_size: number of beams kept for each source.
        end_id: the token that ends a sentence.
        level: the LoD level of sources.
        is_accumulated: scores are accumulated along the sentence; otherwise they are probabilities of this step.
        name: prefix for the names of the variables created.
        return_parent_idx: also return the beam from which each candidate was selected.

    Returns:
        (selected ids, their scores) and, with ``return_parent_idx``, the parent beams, int32.
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ("int64",), "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", FULL_FLOATS, "beam_search")
    check_variable_and_dtype(scores, "scores", FULL_FLOATS, "beam_search")
    helper = LayerHelper("beam_search", name=name)
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "scores": scores}
    if ids is not None:
        check_variable_and_dtype(ids, "ids", ("int64",), "beam_search")
        inputs["ids"] = ids
    selected_scores = helper.create_variable_for_type_inference(dtype=pre_scores.dtype)
    selected_ids = helper.create_variable_for_type_inference(dtype=pre_ids.dtype)
    parent_idx = helper.create_variable_for_type_inference(dtype="int32")
    helper.append_op(
        type="beam_search",
        inputs=inputs,
        outputs={
            "selected_ids": selected_ids,
            "selected_scores": selected_scores,
            "parent_idx": parent_idx,
        },
        attrs={"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated},
    )
    return (selected_ids, selected_scores, parent_idx) if return_parent_idx else (selected_ids, selected_scores)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Reconstruct the sentences selected by `beam_search` by backtracking through the arrays of its steps, best first.

    Args:
        ids, scores: arrays of the selections at each step.
        beam_size, end_id: as given to `beam_search`.
        name: prefix for the names of the variables created.

    Returns:
        (token ids, score of each token), with two LoD levels: sources to sentences, sentences to tokens.
    """
    check_variable_and_dtype(ids, "ids", ("int64",), "beam_search_decode")
    check_variable_and_dtype(scores, "scores", FULL_FLOATS, "beam_search_decode")
    helper = LayerHelper("beam_search_decode", name=name)
    sentence_ids = helper.create_variable_for_type_inference(dtype=ids.dtype)
    sentence_scores = helper.create_variable_for_type_inference(dtype=scores.dtype)
    helper.append_op(
        type="beam_search_decode",
        inputs={"Ids": ids, "Scores": scores},
        outputs={"SentenceIds": sentence_ids, "SentenceScores": sentence_scores},
        attrs={"beam_size": beam_size, "end_id": end_id},
    )
    return sentence_ids, sentence_scores
