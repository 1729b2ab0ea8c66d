"""Losses between what a student and its teacher compute, added to the student's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax import layers
from fluidjax.contrib.slim.graph import GraphWrapper
from fluidjax.framework import Variable, program_guard

__all__ = ["FSPDistiller", "L2Distiller", "SoftLabelDistiller"]


class _Distiller:
    """Adds ``distillation_loss_weight`` times a loss to a graph's "loss", and names it among the outputs."""

    distillation_loss_weight: float

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """Change ``graph``, of student and teacher together; it is returned."""
        with program_guard(graph.program):
            own: Any = graph.variable(graph.out_nodes["loss"]) if "loss" in graph.out_nodes else 0
            distance = self._distance(graph) * self.distillation_loss_weight
            graph.out_nodes["loss"] = (distance + own).name
            graph.out_nodes[self._label()] = distance.name
        return graph

    def _distance(self, graph: GraphWrapper) -> Variable:
        raise NotImplementedError

    def _label(self) -> str:
        raise NotImplementedError


class L2Distiller(_Distiller):
    """mean((student - teacher)^2) of two feature maps of one shape.

    Args:
        student_feature_map, teacher_feature_map: names of variables.
        distillation_loss_weight: the factor of the loss.
    """

    def __init__(self, student_feature_map: str, teacher_feature_map: str, distillation_loss_weight: float = 1):
        self.student_feature_map = student_feature_map
        self.teacher_feature_map = teacher_feature_map
        self.distillation_loss_weight = distillation_loss_weight

    def _distance(self, graph: GraphWrapper) -> Variable:
        student, teacher = graph.variable(self.student_feature_map), graph.variable(self.teacher_feature_map)
        return layers.reduce_mean(layers.square(student - teacher))

    def _label(self) -> str:
        return f"l2loss_{self.student_feature_map}_{self.teacher_feature_map}"


class FSPDistiller(_Distiller):
    """The sum over sections of mean((S - T)^2), S and T the products of a section's first and last feature maps over
    all places (``fsp_matrix``).

    Args:
        student_pairs, teacher_pairs: for each section the names of two variables with equally large feature maps; the
            student's have the teacher's channels.
        distillation_loss_weight: the factor of the loss.
    """

    def __init__(
        self,
        student_pairs: Sequence[Sequence[str]],
        teacher_pairs: Sequence[Sequence[str]],
        distillation_loss_weight: float = 1,
    ):
        self.student_pairs = student_pairs
        self.teacher_pairs = teacher_pairs
        self.distillation_loss_weight = distillation_loss_weight

    def _distance(self, graph: GraphWrapper) -> Variable:
        losses = []
        for pairs in zip(self.student_pairs, self.teacher_pairs, strict=False):  # as many as both have, as in 1.8.5
            student, teacher = (layers.fsp_matrix(*[graph.variable(name) for name in pair]) for pair in pairs)
            losses.append(layers.reduce_mean(layers.square(student - teacher)))
        return layers.sum(losses)

    def _label(self) -> str:
        return "fsp_distillation_loss"


class SoftLabelDistiller(_Distiller):
    """mean over samples of the cross entropy between softmax(teacher / T_t) and softmax(student / T_s).

    Args:
        student_feature_map, teacher_feature_map: names of the logits.
        student_temperature, teacher_temperature: T_s and T_t.
        distillation_loss_weight: the factor of the loss.
    """

    def __init__(
        self,
        student_feature_map: Any = None,
        teacher_feature_map: Any = None,
        student_temperature: float = 1.0,
        teacher_temperature: float = 1.0,
        distillation_loss_weight: float = 1,
    ):
        self.student_feature_map = student_feature_map
        self.teacher_feature_map = teacher_feature_map
        self.student_temperature = student_temperature
        self.teacher_temperature = teacher_temperature
        self.distillation_loss_weight = distillation_loss_weight

    def _distance(self, graph: GraphWrapper) -> Variable:
        student, teacher = graph.variable(self.student_feature_map), graph.variable(self.teacher_feature_map)
        guessed = layers.softmax(student / self.student_temperature)
        wanted = layers.softmax(teacher / self.teacher_temperature)
        wanted.stop_gradient = True
        return layers.reduce_mean(layers.cross_entropy(guessed, wanted, soft_label=True))

    def _label(self) -> str:
        return f"soft_label_loss_{self.student_feature_map}_{self.teacher_feature_map}"
