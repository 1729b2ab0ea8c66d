"""Figures over all workers of a fleet, and keys and values that its processes exchange."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.unbuilt import NotBuiltError
from fluidjax.incubate.fleet.base.role_maker import UserDefinedRoleMaker
from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import fleet
from fluidjax.incubate.fleet.utils import utils
from fluidjax.incubate.fleet.utils.fleet_util import FleetUtil
from fluidjax.incubate.fleet.utils.http_server import KVServer

SUMS = {"sqrerr": 0.2, "abserr": 0.3, "prob": 0.4, "q": 0.45}
FIGURES = [0.8320812794667755, 0.13837075593251597, 0.3, 0.4472135988319589, 0.4768697, 0.4, 1.1921742, 0.45, 38910]


class Connected(UserDefinedRoleMaker):
    """Two workers with equal values."""

    def _all_reduce(self, values: Any, out: Any) -> None:
        out[:] = 2 * values


def util(workers: int = 1, role_maker: type[UserDefinedRoleMaker] = UserDefinedRoleMaker, number: int = 0) -> FleetUtil:
    fleet.init(role_maker(current_id=number, worker_num=workers, server_endpoints=["127.0.0.1:1"]))
    return FleetUtil("transpiler")


@pytest.fixture
def scope() -> fluid.Scope:
    """Counts and sums whose figures Paddle 1.8.5 was asked for."""
    drawn, at = np.random.RandomState(3), np.arange(200)
    pos, neg = drawn.randint(0, 400, 200) * at // 200, drawn.randint(0, 400, 200) * (200 - at) // 200
    total = float(pos.sum() + neg.sum())
    sums = {name: share * total for name, share in SUMS.items()} | {"pos": float(pos.sum()), "total": total}
    scope = fluid.Scope()
    for name, value in {"up": pos[None], "down": neg[None]}.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    for name, number in sums.items():
        scope.var(name).get_tensor().set(np.array([number], "float32"), fluid.CPUPlace())
    return scope


def test_figures_of_one_worker(scope: fluid.Scope, capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers and lines of 1.8.5."""
    one = util()
    np.testing.assert_allclose(one.get_global_metrics(scope, "up", "down"), FIGURES, rtol=1e-7)
    one.print_global_metrics(scope, "up", "down", print_prefix="x")
    one.print_global_auc(scope, "up", "down", print_prefix="x")
    assert capsys.readouterr().out.splitlines() == [
        "x global AUC=0.832081 BUCKET_ERROR=0.138371 MAE=0.300000 RMSE=0.447214 Actural_CTR=0.476870"
        " Predicted_CTR=0.400000 COPC=1.192174 MEAN Q_VALUE=0.450000 Ins number=38910",
        "x global auc = 0.8320812794667755",
    ]


def test_what_a_scope_lacks_is_printed(scope: fluid.Scope, capsys: pytest.CaptureFixture[str]) -> None:
    one = util()
    assert one.get_global_auc(scope, "up", "none") is None
    assert one.get_global_metrics(scope, "up", "down", pos_ins_num_name="clicks") == [None] * 9
    one.print_global_metrics(scope, "up", "down", q_name="quotient")
    assert capsys.readouterr().out.splitlines() == [
        "not found auc bucket",
        "not found pos_ins_num_name=clicks",
        "not found q_name=quotient",
    ]


def test_several_workers_add_by_their_role_maker(scope: fluid.Scope) -> None:
    assert util(2, Connected).get_global_metrics(scope, "up", "down")[-1] == 2 * FIGURES[-1]
    with pytest.raises(RuntimeError, match="does not connect its workers"):
        util(2).get_global_auc(scope, "up", "down")


def test_an_area_without_one_of_the_labels() -> None:
    scope = fluid.Scope()
    scope.var("up").get_tensor().set(np.zeros([1, 4], "int64"), fluid.CPUPlace())
    scope.var("down").get_tensor().set(np.ones([1, 4], "int64"), fluid.CPUPlace())
    assert util().get_global_auc(scope, "up", "down") == 0.5


def test_zeros(scope: fluid.Scope) -> None:
    util().set_zero("up", scope)
    zeros = np.array(scope.find_var("up").get_tensor())
    assert zeros.shape == (1, 200) and zeros.dtype == np.int64 and not zeros.any()


def test_only_the_first_worker_speaks(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 0):
        for say in (util(2, number=number).rank0_print, util(2, number=number).rank0_error):
            say(f"worker {number}")
    assert capsys.readouterr().out == "worker 0\n" and caplog.messages == ["worker 0"]


def test_pslib_is_not_built() -> None:
    with pytest.raises(ValueError, match="expected mode"):
        FleetUtil("other")
    with pytest.raises(NotBuiltError, match="pslib"):
        FleetUtil().rank0_print("none")
    with pytest.raises(NotBuiltError, match=r"FleetUtil\.save_model"):
        FleetUtil("transpiler").save_model("/out", 20190723, 6)
    assert not hasattr(FleetUtil(), "save_everything")


@pytest.mark.parametrize(
    ("hours", "hourly", "first", "passes"),
    [
        ("{0..23}", False, ["0000", "0030"], 24),
        ("{8..20}", True, ["08", "08"], 13),
        ("5 6", False, ["0500", "0530"], 2),
    ],
)
def test_passes_of_a_day(hours: str, hourly: bool, first: list[str], passes: int) -> None:
    found = FleetUtil().get_online_pass_interval("{20190720..20190729}", hours, 30, "2", hourly)
    assert found[0] == first and len(found) == passes


@pytest.fixture(params=[0, 1])
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A model of sums over three numbers, once for sequences of them."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = fluid.data("x", [None, 3], lod_level=request.param)
        out = fluid.layers.fc(x, 2, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(1.0)), name="sum")
        exe = fluid.Executor()
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, main)
    return tmp_path


def config(saved: Path, files: list[str] | None = None, dims: int = 3, fetch: list[str] | None = None) -> Any:
    feed = SimpleNamespace(
        feeded_vars_names=["x"], feeded_vars_dims=[dims], feeded_vars_types=["float32"], feeded_vars_filelist=files
    )
    return SimpleNamespace(
        dump_model_dir=str(saved),
        dump_program_filename="__model__",
        is_text_dump_program=False,
        feed_config=feed,
        fetch_config=SimpleNamespace(fetch_vars_names=fetch),
        batch_size=2,
        save_params_filename=None,
    )


def test_a_saved_model_is_tried_with_drawn_numbers(saved: Path) -> None:
    (drawn,) = FleetUtil().check_vars_and_dump(config(saved))
    assert np.array(drawn).shape == (2, 2) and (np.array(drawn) > 0).all()
    if isinstance(drawn, fluid.LoDTensor):
        assert drawn.recursive_sequence_lengths() == [[1, 1]]


@pytest.mark.parametrize("saved", [0], indirect=True)
def test_a_saved_model_is_tried_with_the_numbers_of_a_file(saved: Path) -> None:
    told = saved / "numbers"
    told.write_text("1 2 3 4 5 6 7\n0 0 1 0 1 1\n")
    (values,) = FleetUtil().check_vars_and_dump(config(saved, [str(told)], fetch=["sum.tmp_0"]))
    np.testing.assert_array_equal(values, [[6, 6], [15, 15], [1, 1], [2, 2]])


@pytest.mark.parametrize("saved", [0], indirect=True)
def test_shapes_that_do_not_fit_a_saved_model(saved: Path) -> None:
    with pytest.raises(RuntimeError, match="feed 'x' does not fit"):
        FleetUtil().check_vars_and_dump(config(saved, dims=4))
    program = utils.load_program(str(saved / "__model__"))
    program.global_block().var("w").desc.set_shape([3, 4])
    utils.save_program(program, str(saved / "other"))
    wrong = config(saved)
    wrong.dump_program_filename = "other"
    with pytest.raises(ValueError, match="the shape of 'w' does not match"):
        FleetUtil().check_vars_and_dump(wrong)


@pytest.mark.parametrize("saved", [0], indirect=True)
def test_two_programs(saved: Path) -> None:
    utils.program_type_trans(str(saved), "__model__", False)
    told = SimpleNamespace(
        train_prog_path=str(saved / "__model__.pbtxt"),
        is_text_train_program=True,
        pruned_prog_path=str(saved / "__model__"),
        is_text_pruned_program=False,
        draw=True,
        draw_out_name="pruned",
    )
    assert FleetUtil().check_two_programs(told) and (saved / "pruned.dot").exists()
    FleetUtil().parse_program_proto(told.pruned_prog_path, False, str(saved))
    assert (saved / "ops.log").exists()


@pytest.fixture
def server() -> Iterator[KVServer]:
    server = KVServer(0, {"ready": 2})
    server.start()
    yield server
    server.stop()


def ask(server: KVServer, method: str, path: str, value: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    url = f"http://127.0.0.1:{server.http_server.server_port}{path}"
    request = urllib.request.Request(url, value, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_keys_and_values(server: KVServer) -> None:
    assert ask(server, "GET", "/ready/0") == (404, b"")
    assert ask(server, "PUT", "/ready/0", b"host") == (200, b"")
    assert ask(server, "GET", "/ready/0") == (200, b"host") and ask(server, "GET", "/other/0") == (404, b"")
    for key in "0", "0", "1":
        assert not server.shoud_stop()
        assert ask(server, "DELETE", f"/ready/{key}") == (200, b"")
    assert server.shoud_stop()


def test_what_the_server_refuses(server: KVServer) -> None:
    assert ask(server, "GET", "/ready") == ask(server, "PUT", "/a/b/c", b"x") == (400, b"")
    assert ask(server, "PUT", "/ready/0", b"x", **{"Content-Length": "-1"}) == (400, b"")
    assert ask(server, "PUT", "/ready/0", b"x", **{"Content-Length": "999999999999"}) == (413, b"")
    assert ask(server, "GET", "/ready/0") == (404, b"")
    assert server.http_server.server_address[0] == "127.0.0.1"
