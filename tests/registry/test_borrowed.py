"""Scripts take ``core`` from ``fluid.layers``, ``LayerHelper`` from ``fluid.layers.nn``: in Fluid these import them."""

import argparse
import socket
from importlib import import_module

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.borrowed import BORROWED
from fluidjax.base.unknown import UnknownName


@pytest.mark.parametrize("module", BORROWED)
def test_every_borrowed_name_is_there(module: str) -> None:
    for name in BORROWED[module].split():
        assert getattr(import_module(module), name) is not None, name


def test_scripts_of_the_model_zoo_import_them() -> None:
    from fluidjax.dygraph import core as eager_core
    from fluidjax.layers import core
    from fluidjax.layers.nn import LayerHelper
    from fluidjax.layers.tensor import VarDesc
    from fluidjax.optimizer import default_main_program, framework

    assert core is fluid.core is eager_core
    assert LayerHelper is fluid.layer_helper.LayerHelper
    assert VarDesc is fluid.core.VarDesc
    assert framework is fluid.framework
    assert default_main_program is fluid.default_main_program


def test_copies_of_the_high_level_api_name_fetches() -> None:
    from fluidjax.executor import _switch_scope, _to_name_str

    x = fluid.data("x", [1])
    fluid.layers.scale(x)
    op = fluid.default_main_program().global_block().ops[-1]
    assert (_to_name_str(x), _to_name_str("x")) == ("x", "x")
    assert _to_name_str(op) == _to_name_str((op, [x])) == str(id(op))
    with pytest.raises(TypeError, match="received int"):
        _to_name_str(3)
    scope, before = fluid.Scope(), fluid.global_scope()
    assert _switch_scope(scope) is before
    assert fluid.global_scope() is scope
    assert _switch_scope(before) is scope


def test_no_module_lends_what_fluids_does_not_import() -> None:
    with pytest.raises(UnknownName, match=r"fluid\.nets has no 'core'"):
        _ = fluid.nets.core
    with pytest.raises(ImportError):
        exec("from fluidjax.layers import Executor")


def test_modules_that_scripts_import_are_there() -> None:
    from fluidjax.dygraph.layers import core
    from fluidjax.paddle.distributed.utils import add_arguments, find_free_ports, get_host_name_ip

    assert core is fluid.core
    assert len(find_free_ports(3)) == 3
    assert (get_host_name_ip() or (socket.gethostname(),))[0] == socket.gethostname()
    parser = argparse.ArgumentParser()
    add_arguments("use_gpu", bool, True, "Whether to.", parser)
    assert parser.parse_args([]).use_gpu is True and parser.parse_args(["--use_gpu", "false"]).use_gpu is False
    assert "Whether to. Default: True." in parser.format_help()


def test_deprecated_functions_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    from fluidjax.annotations import deprecated

    @deprecated(since="1.5", instead="new", extra_message="more")
    def old(a: int) -> int:
        """What it does."""
        return a

    assert old(3) == 3 and old.__name__ == "old"
    assert capsys.readouterr().err == "API old is deprecated since 1.5. Please use new instead.\nmore\n"
    assert old.__doc__ == "What it does.\n    API old is deprecated since 1.5. Please use new instead.\nmore"


def test_kinds_of_metrics_values() -> None:
    from fluidjax.metrics import _is_number_, _is_number_or_matrix_, _is_numpy_

    values = [np.ones(1), 3, np.float32(2), [1], np.ones((2, 2))]
    assert [_is_numpy_(v) for v in values] == [True, False, True, False, True]
    assert [_is_number_(v) for v in values] == [True, True, False, False, False]
    assert [_is_number_or_matrix_(v) for v in values] == [True, True, False, False, True]
