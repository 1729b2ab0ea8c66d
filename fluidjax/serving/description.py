"""The server's description of its model, in plain form and as OpenAPI."""

from __future__ import annotations

from typing import Any

from fluidjax.base.version import package_version
from fluidjax.serving import as_json, as_npz
from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from fluidjax.serving.tensors import Variable


def metadata(model: ServedModel, settings: Settings, alone: str | None) -> dict[str, Any]:
    """Inputs, outputs and limits. ``alone``: the reason why requests are not batched."""
    return {
        "name": model.name,
        "place": str(model.place),
        "version": package_version(),
        "inputs": [_variable(var) for var in model.inputs.values()],
        "outputs": [_variable(var) for var in model.outputs.values()],
        "batching": {
            "together": alone is None,
            "why_not": alone or "",
            "max_batch": settings.max_batch,
            "max_delay": settings.max_delay,
        },
        "limits": {"max_body": settings.max_body, "timeout": settings.timeout, "queue": settings.queue},
    }


def _variable(var: Variable) -> dict[str, Any]:
    return {"name": var.name, "dtype": str(var.dtype), "shape": list(var.shape), "lod_level": var.lod_level}


def openapi(model: ServedModel, settings: Settings) -> dict[str, Any]:
    """The endpoints as OpenAPI 3.1."""
    inputs = {name: _schema(var) for name, var in model.inputs.items()}
    request = _object({"inputs": {**_object(inputs), "additionalProperties": False}})
    tensor = _object({"data": {}, "dtype": {"type": "string"}, "shape": _list({"type": "integer"}), "lod": _LOD})
    answer = _object({"outputs": _object(dict.fromkeys(model.outputs, tensor))})
    error = _object(dict.fromkeys(("error", "expected", "received", "what_to_do"), {"type": "string"}))
    failed = {"description": "an error in three parts", "content": {as_json.MEDIA: {"schema": error}}}
    predict = {
        "summary": "Run the model",
        "requestBody": {"required": True, "content": {as_json.MEDIA: {"schema": request}, as_npz.MEDIA: {}}},
        "responses": {
            "200": {
                "description": "the outputs",
                "content": {as_json.MEDIA: {"schema": answer}, as_npz.MEDIA: {}},
            },
            **dict.fromkeys(("400", "408", "413", "415", "422", "500", "503", "504"), failed),
        },
    }
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": model.name, "version": package_version()},
        "paths": {
            "/predict": {"post": predict},
            "/model": {"get": _read("what the model takes and gives")},
            "/health": {"get": {"responses": {"200": {"description": "warm"}, "503": {"description": "not yet"}}}},
            "/metrics": {"get": _read("counts, for Prometheus")},
        },
    }
    if settings.token:
        described["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        described["security"] = [{"token": []}]
    return described


_LOD: dict[str, Any] = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}


def _read(summary: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": summary}}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _schema(var: Variable) -> dict[str, Any]:
    """Nested lists (of sequences, for a ragged input), or an object with LoD."""
    nested: dict[str, Any] = {"type": {"f": "number", "b": "boolean"}.get(var.dtype.kind, "integer")}
    for size in reversed(var.shape):
        nested = _list(nested) if size < 0 else {**_list(nested), "minItems": size, "maxItems": size}
    if not var.lod_level:
        return nested
    return {"anyOf": [{"type": "array", "items": {"type": "array"}}, _object({"data": nested, "lod": _LOD})]}
