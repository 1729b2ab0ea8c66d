"""Fluid's backward pass: ops that compute gradients, appended to the program that computes a loss.

``append_backward`` visits the ops that the loss needs in reverse and appends the gradient ops of each; ``gradients``
does the same between any targets and inputs. The programs are Paddle's own, op by op and name by name.
"""

from fluidjax.backward import internals as _internals
from fluidjax.backward import names as _names
from fluidjax.backward import paths as _paths
from fluidjax.backward.build import append_backward
from fluidjax.backward.checkpoints import ProgramStats as ProgramStats
from fluidjax.backward.checkpoints import serialize_op_decs as serialize_op_decs
from fluidjax.backward.gradients import calc_gradient as calc_gradient
from fluidjax.backward.gradients import gradients
from fluidjax.base.unknown import unknown_name

__all__ = ["append_backward", "gradients"]

# What tests and tools use by Fluid's private names.
_append_grad_suffix_ = _names.grad_name
_strip_grad_suffix_ = _names.plain_name
_as_list = _names.as_list
_find_op_path_ = _internals.find_op_path
_find_no_grad_vars = _internals.find_no_grad_vars
_some_in_set_ = _internals.some_in_set
_all_in_set_ = _internals.all_in_set
_create_op_desc_ = _internals.create_op_desc
_rename_arg_ = _internals.rename_arguments
_addup_repetitive_outputs_ = _internals.add_up_repetitive_outputs
_remove_no_grad_branch_ = _internals.remove_no_grad_branch
_append_backward_ops_ = _internals.append_grad_ops
_infer_var_data_type_shape_ = _internals.infer_from_forward
_get_stop_gradients_ = _paths.stopped_gradients

# Its name before Fluid 0.11.
append_backward_ops = append_backward

__getattr__ = unknown_name(__name__)
