"""Probability distributions as layers: samples, entropy, log probability and Kullback-Leibler divergence."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.layers import control_flow, nn, ops, tensor

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]


class Distribution:
    """The interface of the distributions; each implements the methods that apply."""

    def sample(self) -> Variable:
        """Samples from the distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no sample().")

    def entropy(self) -> Variable:
        """The entropy of the distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy().")

    def kl_divergence(self, other: Any) -> Variable:
        """KL(self || other)."""
        raise NotImplementedError(f"{type(self).__name__} has no kl_divergence(other).")

    def log_prob(self, value: Variable) -> Variable:
        """The log density at ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob(value).")

    def _parameters(self, *args: Any) -> tuple[list[Variable], bool, bool]:
        """(parameters as Variables, whether all were plain floats, whether their batch size is unknown)."""
        given = [isinstance(arg, Variable) for arg in args]
        if all(given):
            return list(args), False, any(dim == -1 for arg in args for dim in arg.shape[:1])
        if any(given):
            raise ArgumentError(
                f"{type(self).__name__}: some arguments are Variables and some are not. Make all of them Variables "
                "(layers.assign), or none."
            )
        return self._variables(args), all(isinstance(arg, float) for arg in args), False

    def _variables(self, args: tuple[Any, ...]) -> list[Variable]:
        """Convert numbers and arrays to Variables of a common shape."""
        values = [self._array(arg) for arg in args]
        made = []
        for value in np.broadcast_arrays(*values):
            variable = tensor.create_tensor(dtype="float32")
            tensor.assign(np.ascontiguousarray(value), variable)
            made.append(variable)
        return made

    def _array(self, arg: Any) -> np.ndarray:
        if not isinstance(arg, float | list | np.ndarray):
            raise TypeError(
                f"{type(self).__name__}: expected a float, list, array or Variable, received {type(arg).__name__}."
            )
        array = np.zeros(1) + arg if isinstance(arg, float) else np.asarray(arg)
        if isinstance(arg, np.ndarray) and array.dtype != np.float32:
            warnings.warn(
                "data type of argument only support float32, your argument will be convert to float32.", stacklevel=5
            )
        return array.astype("float32")


def _zeros_of(like: Variable, shape: list[int], dtype: Any) -> Variable:
    return tensor.fill_constant_batch_size_like(like, shape, dtype, 0.0)


class Uniform(Distribution):
    """The uniform distribution, with density 1 / (high - low) on [low, high).

    Args:
        low, high: floats, lists, arrays or Variables, all of the same kind.
    """

    def __init__(self, low: Any, high: Any):
        (self.low, self.high), self.all_arg_is_float, self.batch_size_unknown = self._parameters(low, high)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:  # type: ignore[override]  # as Fluid has it
        """Samples [*shape, *batch]: low + u (high - low), with u in [0, 1).

        Fluid draws u from [-1, 1) if the batch size is known, giving values below ``low``; fluidjax does not.
        """
        batch_shape = list((self.low + self.high).shape)
        output_shape = [*shape, *batch_shape]
        if self.batch_size_unknown:
            zeros = _zeros_of(self.low + self.high, batch_shape + list(shape), self.low.dtype)
            drawn = nn.uniform_random_batch_size_like(zeros, list(zeros.shape), min=0.0, max=1.0, seed=seed)
            return nn.reshape(drawn * (zeros + self.high - self.low) + self.low, output_shape)
        drawn = nn.uniform_random(output_shape, min=0.0, max=1.0, seed=seed)
        output = drawn * (tensor.zeros(output_shape, dtype=self.low.dtype) + (self.high - self.low)) + self.low
        return nn.reshape(output, list(shape)) if self.all_arg_is_float else output

    def log_prob(self, value: Variable) -> Variable:
        """log([low < value < high]) - log(high - low)."""
        above = control_flow.less_than(self.low, value)
        below = control_flow.less_than(value, self.high)
        inside = tensor.cast(above, dtype=value.dtype) * tensor.cast(below, dtype=value.dtype)
        return nn.log(inside) - nn.log(self.high - self.low)

    def entropy(self) -> Variable:
        """log(high - low)."""
        return nn.log(self.high - self.low)


class Normal(Distribution):
    """The normal distribution, with density exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)).

    Args:
        loc, scale: floats, lists, arrays or Variables, all of the same kind.
    """

    def __init__(self, loc: Any, scale: Any):
        (self.loc, self.scale), self.all_arg_is_float, self.batch_size_unknown = self._parameters(loc, scale)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:  # type: ignore[override]  # as Fluid has it
        """Samples [*shape, *batch]."""
        batch_shape = list((self.loc + self.scale).shape)
        output_shape = [*shape, *batch_shape]
        if self.batch_size_unknown:
            zeros = _zeros_of(self.loc + self.scale, batch_shape + list(shape), self.loc.dtype)
            drawn = nn.gaussian_random(nn.shape(zeros), mean=0.0, std=1.0, seed=seed)
            return nn.reshape(drawn * (zeros + self.scale) + self.loc, output_shape)
        drawn = nn.gaussian_random(output_shape, mean=0.0, std=1.0, seed=seed)
        output = drawn * (tensor.zeros(output_shape, dtype=self.loc.dtype) + self.scale) + self.loc
        return nn.reshape(output, list(shape)) if self.all_arg_is_float else output

    def entropy(self) -> Variable:
        """0.5 + 0.5 log(2 pi) + log(scale)."""
        batch_shape = list((self.loc + self.scale).shape)
        zeros = _zeros_of(self.loc + self.scale, batch_shape, self.loc.dtype)
        return 0.5 + 0.5 * math.log(2 * math.pi) + nn.log(self.scale + zeros)

    def log_prob(self, value: Variable) -> Variable:
        """-(value - loc)^2 / (2 scale^2) - log(scale) - log(sqrt(2 pi))."""
        var = self.scale * self.scale
        log_scale = nn.log(self.scale)
        square = (value - self.loc) * (value - self.loc)
        return -1.0 * square / (2.0 * var) - log_scale - math.log(math.sqrt(2.0 * math.pi))

    def kl_divergence(self, other: Any) -> Variable:
        """0.5 (r^2 + t^2 - 1 - log r^2) with r = scale / other.scale, t = (loc - other.loc) / other.scale."""
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        shift = (self.loc - other.loc) / other.scale
        shift = shift * shift
        return 0.5 * (ratio + shift - 1.0 - nn.log(ratio))


class Categorical(Distribution):
    """Categorical distributions with probabilities softmax(logits) over the last axis.

    Args:
        logits: list, array or Variable.
    """

    def __init__(self, logits: Any):
        (self.logits,), _, _ = self._parameters(logits)

    @staticmethod
    def _shifted(logits: Variable) -> Variable:
        return logits - nn.reduce_max(logits, dim=-1, keep_dim=True)

    def kl_divergence(self, other: Any) -> Variable:
        """sum of p (log p - log q) over the last axis, which is kept with size 1."""
        logits, other_logits = self._shifted(self.logits), self._shifted(other.logits)
        weights, other_weights = ops.exp(logits), ops.exp(other_logits)
        z = nn.reduce_sum(weights, dim=-1, keep_dim=True)
        other_z = nn.reduce_sum(other_weights, dim=-1, keep_dim=True)
        prob = weights / z
        difference = logits - nn.log(z) - other_logits + nn.log(other_z)
        return nn.reduce_sum(prob * difference, dim=-1, keep_dim=True)

    def entropy(self) -> Variable:
        """-sum of p log p over the last axis, which is kept with size 1."""
        logits = self._shifted(self.logits)
        weights = ops.exp(logits)
        z = nn.reduce_sum(weights, dim=-1, keep_dim=True)
        prob = weights / z
        return -1.0 * nn.reduce_sum(prob * (logits - nn.log(z)), dim=-1, keep_dim=True)


class MultivariateNormalDiag(Distribution):
    """The multivariate normal distribution with a diagonal covariance matrix.

    Args:
        loc: the mean [k]; scale: the covariance, a diagonal matrix [k, k]. Lists, arrays or Variables.
    """

    def __init__(self, loc: Any, scale: Any):
        (self.loc, self.scale), _, _ = self._parameters(loc, scale)

    @staticmethod
    def _ones_and_eye(value: Variable) -> tuple[Variable, Variable]:
        shape = list(value.shape)
        ones = tensor.ones(shape=shape, dtype=value.dtype)
        return ones, tensor.diag(tensor.ones(shape=[shape[0]], dtype=value.dtype))

    def _det(self, value: Variable) -> Variable:
        """The product of the diagonal."""
        ones, eye = self._ones_and_eye(value)
        return nn.reduce_prod(value + ones - eye)

    def _inv(self, value: Variable) -> Variable:
        """The inverse of a diagonal matrix; off-diagonal zeros stay zero."""
        ones, eye = self._ones_and_eye(value)
        return nn.elementwise_pow(value, (ones - 2 * eye))

    def entropy(self) -> Variable:
        """0.5 (k (1 + log(2 pi)) + log det(scale))."""
        size = self.scale.shape[0]
        return 0.5 * (size * (1.0 + math.log(2 * math.pi)) + nn.log(self._det(self.scale)))

    def kl_divergence(self, other: Any) -> Variable:
        """0.5 (tr(S' S) + d S' d - k + log det(other.scale) - log det(scale)), S' = inverse of other.scale."""
        trace = nn.reduce_sum(self._inv(other.scale) * self.scale)
        scaled = nn.matmul((other.loc - self.loc), self._inv(other.scale))
        distance = nn.matmul(scaled, (other.loc - self.loc))
        size = list(self.scale.shape)[0]
        determinants = nn.log(self._det(other.scale)) - nn.log(self._det(self.scale))
        return 0.5 * (trace + distance - size + determinants)
