"""The server's endpoints: ``POST /predict``, and those that describe it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from fluidjax.serving import as_json, as_npz
from fluidjax.serving.description import metadata, openapi
from fluidjax.serving.errors import Refused, refusal_of
from fluidjax.serving.metrics import MEDIA as METRICS
from fluidjax.serving.metrics import Metrics
from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from fluidjax.serving.tensors import Tensor, in_words
from fluidjax.serving.worker import Worker

_LOG = logging.getLogger("fluidjax.serving")
_PAGE = Path(__file__).with_name("page.html")
# The page is all that there is: nothing is loaded from elsewhere.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
# What bodies may be; curl and Python's clients have no name of their own for npz.
_FORMATS: dict[str, ModuleType] = {
    as_json.MEDIA: as_json,
    as_npz.MEDIA: as_npz,
    "application/octet-stream": as_npz,
    "application/zip": as_npz,
}

_DOORS = "POST /predict, or GET of /, /model, /health, /metrics, /openapi.json"

Endpoint = Callable[[Request], Awaitable[Response]]


class Application:
    """A model behind HTTP.

    Args:
        model: the model to serve.
        settings: the limits.

    Attributes:
        asgi: the ASGI application; the worker starts and stops with it.
    """

    def __init__(self, model: ServedModel, settings: Settings):
        self._model, self._settings, self._present = model, settings, 0
        self._metrics = Metrics(lambda: self._present)
        self.worker = Worker(model, settings, self._metrics)
        routes = [
            Route("/", self._page),
            Route("/health", self._health),
            Route("/predict", self._counted, methods=["POST"]),
            Route("/model", self._guarded(self._metadata)),
            Route("/metrics", self._guarded(self._counts)),
            Route("/openapi.json", self._guarded(self._openapi)),
        ]
        handlers = {HTTPException: _not_there, Refused: _refused}
        self.asgi = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._life)

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        self.worker.start()
        yield
        await asyncio.to_thread(self.worker.close)

    # What tells about the server.

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"), headers=_PAGE_HEADERS)

    async def _health(self, _: Request) -> Response:
        if self.worker.ready.is_set():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "warming up"}, 503, {"Retry-After": "1"})

    async def _metadata(self, _: Request) -> Response:
        return JSONResponse(metadata(self._model, self._settings, self.worker.alone))

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(openapi(self._model, self._settings))

    async def _counts(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type=METRICS)

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            self._check_token(request)
            return await endpoint(request)

        return guarded

    def _check_token(self, request: Request) -> None:
        token = self._settings.token
        shown = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()):
            received = "another" if shown else "none"
            raise Refused(401, "this server asks for a token", "the token that it was started with", received,
                          "send the header 'Authorization: Bearer TOKEN'")  # fmt: skip

    # Predictions.

    async def _counted(self, request: Request) -> Response:
        started = time.monotonic()
        try:
            response = await self._predicted(request)
        except Refused as error:
            response = await _refused(request, error)
        self._metrics.answered(response.status_code, time.monotonic() - started)
        return response

    async def _predicted(self, request: Request) -> Response:
        self._check_token(request)
        if self._present >= self._settings.queue:
            raise Refused(503, "the server is busy", f"at most {self._settings.queue} requests at a time",
                          "one more", "send it again in a second", retry=1)  # fmt: skip
        self._present += 1
        try:
            return await self._answer(request, asyncio.get_running_loop().time() + self._settings.timeout)
        finally:
            self._present -= 1

    async def _answer(self, request: Request, deadline: float) -> Response:
        given = _format(request.headers.get("content-type", ""))
        async with _until(deadline, 408, "the request did not arrive in time", "its body within {} s", self._settings):
            body = await _body(request, self._settings.max_body)
        async with _until(deadline, 504, "the request took too long", "an answer within {} s", self._settings):
            inputs = await asyncio.to_thread(given.read, body, self._model.inputs, self._settings.max_body)
            outputs = await self._outputs(inputs)
            wanted = request.headers.get("accept", "")
            answer = next((form for media, form in _FORMATS.items() if media in wanted), given)
            return Response(await asyncio.to_thread(answer.write, outputs), media_type=answer.MEDIA)

    async def _outputs(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        try:
            return await asyncio.wrap_future(self.worker.submit(inputs))
        except Exception as error:
            refusal = refusal_of(error, in_words(inputs))
            if refusal.status == 500:
                _LOG.error("a run failed on %s", in_words(inputs), exc_info=error)
            raise refusal from None


@asynccontextmanager
async def _until(deadline: float, status: int, what: str, expected: str, settings: Settings) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        limit = f"{settings.timeout:g}"
        raise Refused(status, what, expected.format(limit), "nothing by then", "send fewer samples, or later") from None


def _format(content_type: str) -> ModuleType:
    media = content_type.partition(";")[0].strip().lower()
    if media not in _FORMATS:
        raise Refused(415, "the body is of a type that is not read", f"{as_json.MEDIA}, or {as_npz.MEDIA}",
                      media[:100] or "no Content-Type", "say what it is with the header Content-Type")  # fmt: skip
    return _FORMATS[media]


async def _body(request: Request, limit: int) -> bytes:
    """The body. Raises Refused as soon as it is known to be too long, or when it stops arriving."""
    parts, size = [], int(request.headers.get("content-length", 0))
    try:
        if size <= limit:
            size = 0
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    break
                parts.append(part)
    except ClientDisconnect:
        raise Refused(400, "the request is not whole", "a body as long as its Content-Length", "less", "send it again")\
            from None  # fmt: skip
    if size > limit:
        raise Refused(413, "the request is too large", f"a body of at most {limit} bytes", f"{size} bytes or more",
                      "send fewer samples at once, or start the server with a larger --max-body")  # fmt: skip
    return b"".join(parts)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(error.body(), error.status, error.headers())


async def _not_there(request: Request, error: Exception) -> Response:
    """No such page, or the wrong method."""
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"[:300]
    refused = Refused(error.status_code, str(error.detail), _DOORS, asked, "ask for one of them")
    return JSONResponse(refused.body(), error.status_code, error.headers)
