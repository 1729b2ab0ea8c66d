"""What a server does with requests that no trainer of its job would make."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed import server, settings
from fluidjax.distributed.client import BATCH_BARRIER, Client, RPCError
from fluidjax.distributed.wire import Message, WireError, frames, joined
from lowering.values import SelectedRows
from tests.distributed.jobs import Job, dense, sparse

grpc = settings.grpc()
DATA = Path(__file__).with_name("data")


@pytest.fixture
def flags():
    """Sets flags, and takes it back."""
    names = ["FLAGS_rpc_deadline", "FLAGS_rpc_max_message_bytes", "FLAGS_rpc_retry_times", "FLAGS_rpc_token"]
    before = fluid.get_flags(names)
    yield fluid.set_flags
    fluid.set_flags(before)


def values(message: Message) -> list[tuple[str, list]]:
    return [(name, None if value is None else np.asarray(getattr(value, "values", value)).tolist())
            for name, value in message.items]  # fmt: skip


@pytest.mark.parametrize("rows", [3, 300_000])
def test_messages_arrive_as_they_were_sent(rows, rng):
    table = SelectedRows(np.array([2, 0], np.int64), rng.normal(size=(2, 3)).astype("float32"), 7)
    message = Message([("w", rng.normal(size=rows)), ("t", table), (BATCH_BARRIER, None)], trainer=4, flags=1)
    parts = frames(message)
    assert all(len(part) <= settings.CHUNK for part in parts) and sum(map(len, parts)) == message.size
    found = joined(parts, settings.limit())
    assert (found.trainer, found.flags, values(found)) == (4, 1, values(message))
    assert found.items[1][1].rows.tolist() == [2, 0] and found.items[1][1].height == 7


@pytest.mark.parametrize("name", ["w", "table.block0", "a_name_of_27_characters@GRAD"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_numbers_are_used_where_they_arrived(name, dtype):
    dense = np.arange(12, dtype=dtype).reshape(4, 3)
    table = SelectedRows(np.array([5, 0, 2], np.int64), dense[:3], 9)
    (data,) = frames(Message([(name, None), (name, table), (name, dense)]))
    _, (_, rows), (_, found) = joined([data], settings.limit()).items
    whole = np.frombuffer(data, np.uint8)
    assert np.shares_memory(found, whole) and np.shares_memory(rows.values, whole)
    assert all((each.ctypes.data - whole.ctypes.data) % 16 == 0 for each in (found, rows.values))
    assert found.flags.aligned and rows.values.flags.aligned and rows.rows.flags.aligned
    np.testing.assert_array_equal(found, dense)
    np.testing.assert_array_equal(rows.values, dense[:3])
    assert rows.rows.tolist() == [5, 0, 2] and found.dtype == dtype


def test_damaged_messages_are_refused(rng):
    data = frames(Message([("w", np.arange(6.0)), ("b", np.arange(3))]))[0]
    for _ in range(300):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            damaged[place] = rng.integers(0, 256)
        try:
            joined([bytes(damaged)], 1 << 20)
        except WireError:
            pass
    for size in range(1, len(data)):
        with pytest.raises(WireError):
            joined([data[:size]], 1 << 20)


def test_a_message_longer_than_the_limit_is_refused_by_its_first_frame():
    first = frames(Message([("w", np.zeros(1 << 20, np.float32))]))[0]

    def parts():
        yield first
        raise AssertionError("read on")

    with pytest.raises(WireError, match="longer than the 1000"):
        joined(parts(), 1000)


WRONG = {
    "no variable that blocks take": ("SendVariable", ("w0@GRAD.nobody", np.zeros(3, np.float32)), "takes no variable"),
    "another shape": ("SendVariable", ("b0@GRAD", np.zeros(3, np.float32)), "declares the shape"),
    "another dtype": ("SendVariable", ("b0@GRAD", np.zeros(8, np.float64)), "declares float32"),
    "a name alone": ("SendVariable", ("b0@GRAD", None), "no value"),
    "a variable that is not held": ("GetVariable", ("/etc/passwd", None), "holds no variable"),
    "rows of no table": ("PrefetchVariable", ("nothing", np.zeros(2, np.int64)), "no table"),
    "rows outside": ("PrefetchVariable", ("w0", np.array([0, 99])), "outside of the 8 rows"),
    "ids without a value": ("PrefetchVariable", ("w0", None), "wants integers"),
    "ids that are no integers": ("PrefetchVariable", ("w0", np.zeros(2, np.float32)), "wants integers"),
    "rows for a dense variable": (
        "SendVariable",
        ("b0@GRAD", SelectedRows(np.zeros(1, np.int64), np.zeros((1, 8), np.float32), 8)),
        "declares a tensor",
    ),  # noqa: E501
    "no folder to save to": ("CheckpointNotify", ("w0", None), "wants integers"),
    "no number to count by": ("DistributeNotify", ("@LR_DECAY_COUNTER@.trainer_0", None), "wants integers"),
    "no table to save": ("CheckpointNotify", ("w0", np.zeros(2, np.uint8)), "no table"),
    "nothing to count": ("DistributeNotify", ("@LR_DECAY_COUNTER@.trainer_0", np.ones(1, np.int64)), "counts no"),
}


def test_a_server_refuses_what_its_program_does_not_declare_and_goes_on(caplog):
    job = Job(dense, servers=1, config={"sync_mode": False}, sync=False, min_block_size=10**6)
    with job.running(), caplog.at_level(logging.WARNING, "fluidjax.distributed.listening"):
        losses = job.train(2, lambda step, exe, main: _refused(job.endpoints[0]) if not step else None)
    np.testing.assert_allclose(losses, job.alone(2), rtol=1e-5)
    assert len([r for r in caplog.records if "closed a request" in r.getMessage()]) >= len(WRONG)


def _refused(endpoint: str) -> None:
    stranger = Client()
    for method, (name, value), message in WRONG.values():
        with pytest.raises(RPCError, match=message):
            stranger.ask(method, [(endpoint, name, value)])
    stranger.trainer = 7
    with pytest.raises(RPCError, match="no trainer 7"):
        stranger.ask("GetVariable", [(endpoint, "w0", None)])
    stranger.leave()
    _garbage(endpoint)


def _garbage(endpoint: str) -> None:
    """Bytes that are no HTTP/2 end the connection; a call with bytes that are no message gets an error."""
    host, port = endpoint.split(":")
    with socket.create_connection((host, int(port)), 120) as connection:
        connection.sendall(b"\x00\xff" * 500)
        connection.settimeout(120)
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
    with grpc.insecure_channel(endpoint, settings.options(server=False)) as channel:
        for hostile in (b"", b"FLJX", b"FLJX" + b"\xff" * 40, b"x" * 5000):
            for method in ("SendVariable", "Attend"):
                call = channel.unary_unary(f"/{settings.SERVICE}/{method}")
                with pytest.raises(grpc.RpcError) as error:
                    call(hostile, timeout=120)
                assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_token_keeps_strangers_out(flags):
    flags({"FLAGS_rpc_token": "secret"})
    job = Job(dense, servers=1)

    def intrude(step, exe, main):
        with grpc.insecure_channel(job.endpoints[0]) as channel:
            for token in ([], [("token", "guess")]):
                for method in ("GetVariable", "Attend"):
                    with pytest.raises(grpc.RpcError, match="token") as error:
                        channel.unary_unary(f"/{settings.SERVICE}/{method}")(b"FLJX", timeout=120, metadata=token)
                    assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED

    with job.running():
        losses = job.train(2, intrude)
    np.testing.assert_allclose(losses, job.alone(2), rtol=1e-5)


def test_a_server_that_is_not_there_is_an_error_when_the_deadline_is_over(flags):
    flags({"FLAGS_rpc_deadline": 200})
    job = Job(sparse)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        main, startup, _, transpiler = job._programs()
    with pytest.raises(fluid.core.EnforceNotMet, match=r"(?s)no answer in 0.2 s.*what to do.*FLAGS_rpc_deadline"):
        fluid.Executor(fluid.CPUPlace()).run(startup)


def test_a_server_binds_its_endpoint_alone():
    job = Job(servers=1)
    with job.running():
        threading.Event().wait(0.3)
        host = socket.gethostbyname(socket.gethostname())
        if not host.startswith("127."):
            with pytest.raises(OSError):
                socket.create_connection((host, int(job.endpoints[0].split(":")[1])), 1).close()
        job.train(1)


def test_with_certificates_nobody_reads_along_and_nobody_without_one_comes_in(flags):
    before = fluid.get_flags(["FLAGS_rpc_tls_ca", "FLAGS_rpc_tls_cert", "FLAGS_rpc_tls_key"])
    certificate = str(DATA / "certificate.pem")
    flags({"FLAGS_rpc_tls_ca": certificate, "FLAGS_rpc_tls_cert": certificate})
    flags({"FLAGS_rpc_tls_key": str(DATA / "key.pem")})
    job = Job(dense, servers=1)

    def intrude(step, exe, main):
        with grpc.insecure_channel(job.endpoints[0]) as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(f"/{settings.SERVICE}/GetVariable")(b"FLJX", timeout=120)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE

    try:
        with job.running():
            losses = job.train(2, intrude)
    finally:
        flags(before)
    np.testing.assert_allclose(losses, job.alone(2), rtol=1e-5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_end_ends_well(number, interrupts_arrive):
    """As in Fluid: launchers, and Ctrl-C, end servers with code 0; a handler of the program's own is left alone."""
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, server._ended_by_signals():
        signal.raise_signal(number)
    assert ended.value.code == 0
    assert signal.getsignal(number) == before
    with _ignored(signal.SIGINT), server._ended_by_signals():
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
