"""Scripts take ``core`` from ``fluid.layers``, ``LayerHelper`` from ``fluid.layers.nn``: in Fluid these import them."""

from importlib import import_module

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


@pytest.mark.usefixtures("nothing_written")
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
        from fluidjax.layers import Executor  # noqa: F401
