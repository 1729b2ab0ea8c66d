"""The quantization passes under Fluid's names."""

from fluidjax.contrib.slim.quantization.freezing import QuantizationFreezePass
from fluidjax.contrib.slim.quantization.int8 import ConvertToInt8Pass, TransformForMobilePass
from fluidjax.contrib.slim.quantization.ops import (
    FAKE_DEQUANTIZE as _fake_dequant_op_list,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    FAKE_QUANTIZE as _fake_quant_op_list,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    REAL_SLOTS as _op_real_in_out_name,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    SCALED as _out_scale_op_list,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    initialize as _init_var_node,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    only_activations as _is_input_all_not_persistable,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    read_by as _get_op_input_var_names,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.ops import (
    written_by as _get_op_output_var_names,  # noqa: F401
)
from fluidjax.contrib.slim.quantization.out_scales import OutScaleForInferencePass, OutScaleForTrainingPass
from fluidjax.contrib.slim.quantization.transform import QuantizationTransformPass
from fluidjax.contrib.slim.quantization.without_weights import AddQuantDequantPass

__all__ = [
    "QuantizationTransformPass",
    "QuantizationFreezePass",
    "ConvertToInt8Pass",
    "TransformForMobilePass",
    "OutScaleForTrainingPass",
    "OutScaleForInferencePass",
    "AddQuantDequantPass",
]
