"""The ops that compute in 16 bits, those that compute in 32, and those that follow their inputs."""

from __future__ import annotations

from collections.abc import Iterable

from fluidjax.base.enums import VarType, to_var_type

__all__ = ["AutoMixedPrecisionLists"]

# Matrix products: fast and safe in 16 bits.
white_list = frozenset("conv2d matmul mul".split())
# Numerically dangerous ones, and those whose outcome goes on to such.
black_list = frozenset(
    "exp square log mean sum cos_sim softmax softmax_with_cross_entropy sigmoid_cross_entropy_with_logits "
    "cross_entropy cross_entropy2".split()
)
# Follow their inputs. Every op in none of the lists counts as black.
gray_list = frozenset(
    "elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min elementwise_pow "
    "elementwise_mod elementwise_floordiv batch_norm tanh sigmoid lookup_table top_k pool2d pool3d dropout relu relu6 "
    "leaky_relu soft_relu flatten2 stack unstack uniform_random_batch_size_like gaussian_random "
    "gaussian_random_batch_size_like slice rank scale transpose2 reshape2 gather fill_constant "
    "get_tensor_from_selected_rows sign cast".split()
)


class AutoMixedPrecisionLists:
    """The lists of op types, customised by the user.

    Args:
        custom_white_list: op types to compute in 16 bits.
        custom_black_list: op types to compute in 32 bits.
        custom_black_varnames: variables whose ops compute in 32 bits.

    Attributes:
        white_list, black_list, gray_list: sets of op types.
        black_varnames: the variables, or None.
        dtype: the 16-bit type, VarType.FP16; assign "bfloat16" to use that type, which has the range of float32.

    Raises:
        ValueError: an op type is in both custom lists.
    """

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
    ) -> None:
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        if white & black:
            raise ValueError(
                f"AutoMixedPrecisionLists: {', '.join(sorted(white & black))} in both custom lists; expected each op "
                "type in one. Decide for 16 or 32 bits"
            )
        self._custom_white_list = custom_white_list
        self._custom_black_list = custom_black_list
        self.white_list = (set(white_list) | white) - black
        self.black_list = (set(black_list) | black) - white
        self.gray_list = set(gray_list) - white - black
        self.black_varnames = set(custom_black_varnames) if custom_black_varnames is not None else None
        self._dtype = VarType.FP16

    @property
    def dtype(self) -> VarType:
        """The 16-bit type."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: VarType | str) -> None:
        kind = to_var_type(dtype)
        if kind not in (VarType.FP16, VarType.BF16):
            raise ValueError(
                f"AutoMixedPrecisionLists: dtype {dtype!r} is no 16-bit float; expected float16 or bfloat16. Choose one"
            )
        self._dtype = kind
