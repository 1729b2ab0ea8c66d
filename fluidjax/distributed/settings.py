"""Settings of both sides: deadlines, message sizes, authentication."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from fluidjax.base.flags import flag
from fluidjax.base.optional import optional

CHUNK = 1 << 20  # a longer message travels in parts of this many bytes
IN_PARTS = "InParts"  # follows the name of a method whose messages may be long
IN_TURN = "InTurn"  # a stream of requests of all methods, each of one frame; see ``conversation``
SEND_AND_GET = "SendAndGetVariable"  # not Fluid's: see Serving.send_and_get
METHODS = (
    "SendVariable", "GetVariable", SEND_AND_GET, "PrefetchVariable", "CheckpointNotify", "DistributeNotify",
)  # fmt: skip
SERVICE = "sendrecv.SendRecvService"  # Fluid's, as the names of its methods

_HEAD = 1 << 12  # beside its chunk, a frame may hold this much


@cache
def grpc() -> Any:
    """The grpc module. Raises ImportError, with instructions to install it, if missing."""
    return optional("grpc", "parameter servers talk through gRPC", "'fluidjax[distributed]'")


def deadline() -> float:
    """Time limit of a request in seconds (FLAGS_rpc_deadline, in milliseconds)."""
    return flag("FLAGS_rpc_deadline") / 1000


def limit() -> int:
    """Maximum size of a message in bytes (FLAGS_rpc_max_message_bytes)."""
    return flag("FLAGS_rpc_max_message_bytes")


def options(*, server: bool) -> list[tuple[str, Any]]:
    """Options of a channel or server: bounded frames, and a keepalive that drops a peer silent for 10 s."""
    common = [
        ("grpc.max_receive_message_length", CHUNK + _HEAD),
        ("grpc.max_send_message_length", CHUNK + _HEAD),
        ("grpc.keepalive_time_ms", 5000),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if server:
        return [*common, ("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 1000)]
    return [
        *common,
        ("grpc.enable_http_proxy", 0),
        # The thread that sends one message reads the answer itself, with no other thread in between.
        ("SingleThreadedUnaryStream", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # How long one attempt may take: on a busy machine the first answer of a server that is there may take seconds.
        ("grpc.min_reconnect_backoff_ms", 10_000),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]


def metadata() -> list[tuple[str, str]]:
    """Metadata sent with each request: the token, if set (FLAGS_rpc_token)."""
    return [("token", flag("FLAGS_rpc_token"))] if flag("FLAGS_rpc_token") else []


def channel_credentials() -> Any:
    """Credentials of a trainer's channels; None: no TLS. FLAGS_rpc_tls_ca names the CA certificate of the servers."""
    if not flag("FLAGS_rpc_tls_ca"):
        return None
    own = _own()
    key, certificate = own if own else (None, None)
    return grpc().ssl_channel_credentials(Path(flag("FLAGS_rpc_tls_ca")).read_bytes(), key, certificate)


def server_credentials() -> Any:
    """Credentials of a server; None: no TLS. With FLAGS_rpc_tls_ca, trainers must present a certificate as well."""
    own = _own()
    if own is None:
        return None
    ca = Path(flag("FLAGS_rpc_tls_ca")).read_bytes() if flag("FLAGS_rpc_tls_ca") else None
    return grpc().ssl_server_credentials([own], ca, require_client_auth=ca is not None)


def _own() -> tuple[bytes, bytes] | None:
    if not flag("FLAGS_rpc_tls_cert"):
        return None
    return Path(flag("FLAGS_rpc_tls_key")).read_bytes(), Path(flag("FLAGS_rpc_tls_cert")).read_bytes()


def retries() -> int:
    """How often to repeat a request that a server died without answering (FLAGS_rpc_retry_times)."""
    return flag("FLAGS_rpc_retry_times")


def linger() -> float:
    """Seconds that a server remains once no trainer is left (FLAGS_rpc_server_linger, in milliseconds)."""
    return flag("FLAGS_rpc_server_linger") / 1000
