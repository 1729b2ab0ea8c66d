"""paddle.compat, paddle.utils and what else a script finds beside paddle.fluid."""

import os

import pytest

import fluidjax
from fluidjax import paddle
from fluidjax.paddle import compat


def test_package():
    assert paddle.fluid is fluidjax
    assert paddle.dataset.mnist.__name__ == "fluidjax.paddle.dataset.mnist"
    assert paddle.utils.Ploter
    with pytest.raises(AttributeError, match="nonsense"):
        paddle.nonsense  # noqa: B018


def test_where_builds_look():
    home = os.path.dirname(paddle.__file__)
    assert paddle.sysconfig.get_include() == os.path.join(home, "include")
    assert paddle.sysconfig.get_lib() == os.path.join(home, "libs")


def test_text_and_bytes():
    assert compat.to_text([b"a", "b", None]) == ["a", "b", None]
    assert compat.to_bytes({"a"}) == {b"a"}
    assert compat.to_text({b"k": [b"v"]}) == {"k": ["v"]}
    items = [b"a"]
    assert compat.to_text(items, inplace=True) is items and items == ["a"]
    kinds = {"a", "b"}
    assert compat.to_bytes(kinds, inplace=True) is kinds and kinds == {b"a", b"b"}


@pytest.mark.parametrize(
    "x, d, expected", [(0.5, 0, 1.0), (-0.5, 0, -1.0), (2.675, 1, 2.7), (0.0, 0, 0.0), (1.05, 1, 1.1)]
)
def test_round(x, d, expected):
    assert compat.round(x, d) == expected


def test_the_rest_of_compat():
    assert compat.floor_division(7, 2) == 3
    assert compat.get_exception_message(KeyError("x")) == "'x'"
    with pytest.raises(AssertionError):
        compat.get_exception_message(None)


def test_ploter(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    ploter = paddle.utils.Ploter("train", "test")
    for step in range(3):
        ploter.append("train", step, step * 2)
    ploter.plot(str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").stat().st_size > 1000
    ploter.reset()
    assert ploter.__plot_data__["train"].step == []
    with pytest.raises(AssertionError, match="no curve 'other'"):
        ploter.append("other", 0, 0)
    monkeypatch.setenv("DISABLE_PLOT", "True")
    paddle.utils.Ploter("a").plot()


def test_check_import_scipy():
    paddle.check_import_scipy("posix")
    paddle.check_import_scipy("nt")


def test_version(capsys):
    paddle.version.show()
    assert "1.8.5" in capsys.readouterr().out
    assert paddle.version.mkl() == "ON"


def test_scripts_may_say_that_they_write_programs():
    paddle.enable_static()
    assert not paddle.in_dynamic_mode()
    paddle.disable_static()
    try:
        assert paddle.in_dynamic_mode() and fluidjax.in_dygraph_mode()
    finally:
        paddle.enable_static()
    assert not fluidjax.in_dygraph_mode()


def test_what_modules_of_layers_import_by_a_star() -> None:
    names: dict[str, object] = {}
    exec("from fluidjax.paddle.common_ops_import import *", names)
    assert names["LayerHelper"] is fluidjax.layer_helper.LayerHelper
    assert names["VarDesc"].VarType.FP32 == names["convert_np_dtype_to_dtype_"]("float32")
    assert {"check_variable_and_dtype", "in_dygraph_mode", "templatedoc", "fill_constant"} <= names.keys()
