"""The server's front end: gRPC threads decode requests, have them served, and encode the replies."""

from __future__ import annotations

import hmac
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.flags import flag
from fluidjax.distributed import settings
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.settings import METHODS
from fluidjax.distributed.wire import TOLD, Message, WireError, apart, frames, joined
from lowering.engine.thread import settings_of_thread

_log = logging.getLogger(__name__)


class Listening:
    """Listens at an endpoint until ``stop``.

    Args:
        endpoint: HOST:PORT, the only address bound unless FLAGS_rpc_bind names a host. Port 0 picks a free port.
        trainers: number of trainers expected.
        serve: called with each request, in a gRPC thread that has jax's settings of the thread that listens; answers
            it, or sees to it that it is answered later.

    Raises RuntimeError when the endpoint cannot be bound.
    """

    def __init__(self, endpoint: str, trainers: int, serve: Callable[[Request], None]) -> None:
        grpc = self._grpc = settings.grpc()
        self._serve = serve
        # A trainer has a call that tells of its presence, streams of requests, and some requests on their way.
        self._workers = ThreadPoolExecutor(12 * trainers + 8, "fluidjax-server", initializer=settings_of_thread())
        self._server = grpc.server(self._workers, options=settings.options(server=True))
        self._server.add_generic_rpc_handlers([self._handlers()])
        self.port = self._bind(endpoint)
        self._server.start()
        self._file = _port_file(self.port)

    def stop(self) -> None:
        """Let pending replies go out, then close."""
        self._server.stop(grace=1).wait()
        self._file.unlink(missing_ok=True)

    def _bind(self, endpoint: str) -> int:
        host, _, port = endpoint.rpartition(":")
        address = f"{flag('FLAGS_rpc_bind') or host or '127.0.0.1'}:{port}"
        credentials = settings.server_credentials()
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise RuntimeError(
                explain(f"cannot listen at {address}", "a free port of this machine", str(error), "choose another port")
            ) from error

    def _handlers(self) -> Any:
        long, short = self._grpc.stream_stream_rpc_method_handler, self._grpc.unary_unary_rpc_method_handler
        handlers = {method: short(self._answering_at_once(method)) for method in METHODS}
        handlers |= {method + settings.IN_PARTS: long(self._answering(method)) for method in METHODS}
        handlers[settings.IN_TURN] = long(self._converse)
        handlers["Attend"] = long(self._attend)
        return self._grpc.method_handlers_generic_handler(settings.SERVICE, handlers)

    def _answering(self, method: str) -> Callable[[Iterator[bytes], Any], Iterator[bytes]]:
        def answer(parts: Iterator[bytes], context: Any) -> Iterator[bytes]:
            request = Request(method, self._received(parts, context))
            if context.add_callback(request.answer.cancel):
                self._serve(request)
            else:  # who asked has given up already
                request.answer.cancel()
            return iter(frames(self._answer(request, context)))

        return answer

    def _answering_at_once(self, method: str) -> Callable[[bytes, Any], bytes]:
        in_parts = self._answering(method)

        def answer(part: bytes, context: Any) -> bytes:
            return self._single(method, in_parts(iter([part]), context), context)

        return answer

    def _converse(self, parts: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serves requests of one frame, one after another; see ``conversation``."""
        self._check_token(context)
        asked: list[Request] = []
        context.add_callback(lambda: [request.answer.cancel() for request in asked])
        for message in self._messages(parts, context):
            asked[:] = [Request(self._method(message, context), message)]
            if not context.is_active():  # the callback may have missed it
                return
            self._serve(asked[0])
            answer = self._answer(asked[0], context)
            if not message.flags & TOLD:
                yield self._single(asked[0].method, iter(frames(answer)), context)

    def _messages(self, parts: Iterator[bytes], context: Any) -> Iterator[Message]:
        for part in parts:
            try:
                yield from apart(part, settings.limit())
            except WireError as error:
                self._abort(context, self._grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _method(self, message: Message, context: Any) -> str:
        if message.method >= len(METHODS):
            text = f"there is no method {message.method}: there are {len(METHODS)}"
            self._abort(context, self._grpc.StatusCode.INVALID_ARGUMENT, text)
        return METHODS[message.method]

    def _single(self, method: str, answer: Iterator[bytes], context: Any) -> bytes:
        first, *rest = answer
        if rest:
            text = f"the answer to {method} is longer than a frame; ask {method + settings.IN_PARTS} for it"
            self._abort(context, self._grpc.StatusCode.OUT_OF_RANGE, text)
        return first

    def _attend(self, parts: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Lasts as long as the connection; when it ends, the trainer is gone."""
        self._check_token(context)
        first = Request("Attend", self._read(iter([next(parts, b"")]), context))
        gone = Request("Gone", first.message)
        if not context.add_callback(lambda: self._workers.submit(self._serve, gone)):
            return
        self._serve(first)
        next(parts, None)
        yield b""

    def _received(self, parts: Iterator[bytes], context: Any) -> Message:
        self._check_token(context)
        return self._read(parts, context)

    def _read(self, parts: Iterator[bytes], context: Any) -> Message:
        try:
            message = joined(parts, settings.limit())
        except WireError as error:
            self._abort(context, self._grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        return message if message is not None else Message()

    def _check_token(self, context: Any) -> None:
        token = flag("FLAGS_rpc_token")
        given = dict(context.invocation_metadata()).get("token", "")
        if token and not hmac.compare_digest(token.encode(), str(given).encode()):
            self._abort(context, self._grpc.StatusCode.UNAUTHENTICATED, "the token is not this server's")

    def _answer(self, request: Request, context: Any) -> Message:
        try:
            return request.answer.result()
        except (CancelledError, RefusedError) as error:
            self._abort(context, self._grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        except Exception as error:
            self._abort(context, self._grpc.StatusCode.ABORTED, str(error), log=False)
            raise

    def _abort(self, context: Any, code: Any, text: str, *, log: bool = True) -> None:
        if log:
            _log.warning("closed a request of %s: %s", context.peer(), text.splitlines()[0] if text else "it ended")
        context.abort(code, text)


def _port_file(port: int) -> Path:
    """Publish the port this process listens on in a file, as Fluid's servers do."""
    path = Path(tempfile.gettempdir(), f"paddle.{os.getpid()}.port")
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o644)
    with os.fdopen(number, "w") as file:
        file.write(str(port))
    return path
