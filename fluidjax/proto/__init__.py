"""``fluid.proto``: the messages that programs are made of, where Fluid keeps them."""

import sys

from fluidjax.proto import framework_pb2

sys.modules[f"{__name__}.framework_pb2"] = framework_pb2  # one module: messages of a name exist once in a process
