"""Record the cases with the real framework: ``python record.py``, under Python 3.7 with paddlepaddle 1.8.5."""

import json
import os
import sys
import warnings
import zipfile

import paddle.fluid as fluid
import paddle.fluid.layer_helper  # noqa: F401  (the cases use it)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from cases import CASES  # noqa: E402


def bare(program):
    """The program's bytes without the lines that made its ops."""
    message = fluid.framework.framework_pb2.ProgramDesc.FromString(program.desc.serialize_to_string())
    for block in message.blocks:
        for op in block.ops:
            for attr in op.attrs:
                if attr.name == "op_callstack":
                    del attr.strings[:]
    return message.SerializePartialToString()


def record():
    with zipfile.ZipFile(os.path.join(HERE, "recorded.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(CASES):
            fluid.framework._name_scope = fluid.framework.NameScope()
            main, startup = fluid.Program(), fluid.Program()
            with fluid.unique_name.guard(), fluid.program_guard(main, startup):
                CASES[name](fluid, main, startup)
            kinds = {var.name: [type(var).__name__, var.stop_gradient] for var in main.list_vars()}
            for part, content in (("main", bare(main)), ("startup", bare(startup)), ("kinds", json.dumps(kinds))):
                archive.writestr(zipfile.ZipInfo(name + "/" + part, (1980, 1, 1, 0, 0, 0)), content)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    record()
