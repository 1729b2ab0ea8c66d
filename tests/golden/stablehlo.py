"""``python -m tests.golden.stablehlo [case ...]``: recorded networks' test programs as StableHLO.

Each is saved as an inference model, and written for any sizes, or else for those of the recorded inputs. What the file
gives, read back by JAX alone, is held against the Executor.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from fluidjax.export import ExportError
from fluidjax.export import files as export_files
from fluidjax.export.sizes import LEAST_ROWS, open_dims
from tests.golden import doors
from tests.golden.recordings import folder as recordings
from tests.golden.values import Tensor
from tests.golden.zoocase import zoo_case, zoo_cases
from tests.here import PLATFORM

TOLERANCE = 1e-5


def sizes_of(model: doors.Model) -> dict[str, Any]:
    """The sizes that the recorded inputs have, as options of the converter."""
    variables = model.program.global_block().vars
    ragged = [value for value in model.feeds.values() if value.lod]
    found: dict[str, Any] = {
        "sizes": {n: [v.array.shape[at] for at in open_dims(variables[n])] for n, v in model.feeds.items()}
    }
    if ragged:
        found |= {"batch": len(ragged[0].lod[0]) - 1, "rows": max(len(value.array) for value in ragged)}
    return found


def given(feeds: Mapping[str, Tensor], kinds: Mapping[str, Any], room: int) -> dict[str, Any]:
    """The inputs as the file takes them, ragged ones with room for as many rows."""
    return {
        name: _given(v, kinds[name], room) if isinstance(kinds[name], dict) else v.array for name, v in feeds.items()
    }


def _given(value: Tensor, kind: Any, room: int) -> dict[str, Any]:
    rows = np.concatenate([value.array, np.full((room - len(value.array), *value.array.shape[1:]), 77)])
    offsets = [
        np.pad(level, (0, int(size) - len(level) if size.isdigit() else 0), mode="edge").astype(np.int32)
        for ((size,), _), level in zip(kind["lod"], value.lod, strict=True)
    ]
    return {"data": rows.astype(value.array.dtype), "lod": offsets}


def called(model: doors.Model, where: Path, **options: Any) -> doors.Found:
    """What the file written with these options gives for the recorded inputs."""
    source = export_files.Model(model.folder, None, model.parameters)
    source.write(str(where), "stablehlo", platforms=[PLATFORM], **options)
    read = export.deserialize(bytearray((where / "model.jax_export").read_bytes()))
    signature = json_of(where)
    rows = max((len(value.array) for value in model.feeds.values() if value.lod), default=0)
    room = options.get("rows") or max(rows, LEAST_ROWS)
    with np.load(where / "weights.npz") as weights, jax.enable_x64(True):
        keys = [np.zeros(2, np.uint32)] if signature["key"] else []
        inputs = given(model.feeds, signature["inputs"], room)
        return [_fetched(value) for value in read.call(dict(weights), inputs, *keys)]


def json_of(where: Path) -> Any:
    """What the written signature says."""
    return json.loads((where / "signature.json").read_text())


def _fetched(value: Any) -> tuple[np.ndarray, list[list[int]]]:
    """The valid rows of an output and their LoD, whose inner levels have room for more sequences than there are."""
    if not isinstance(value, dict):
        return np.asarray(value), []
    levels = [np.asarray(level).tolist() for level in value["lod"]]
    inner = [level[: outer[-1] + 1] for outer, level in zip(levels, levels[1:], strict=False)]
    return np.asarray(value["data"])[: int(value["nrows"])], levels[:1] + inner


def check(model: doors.Model, where: Path) -> tuple[str, float]:
    """(for what sizes it was written, how far it is from the Executor). ExportError where it cannot be."""
    with contextlib.suppress(ExportError):
        return "any sizes", doors.distance(called(model, where / "open"), model.expected)
    return "its sizes", doors.distance(called(model, where / "fixed", **sizes_of(model)), model.expected)


def main() -> int:
    """Check and report; the exit status is 1 when a file differs, or none was written."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.stablehlo", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all")
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {recordings()}")
    count = Counter[str]()
    for name in args.cases or zoo_cases():
        with tempfile.TemporaryDirectory() as folder:
            for kind, model in doors.models(zoo_case(name), f"{folder}/model"):
                try:
                    sizes, apart = check(model, Path(folder) / kind)
                    said, state = f"{sizes} {apart:.1e}", "ok" if apart <= TOLERANCE else "FAIL"
                    count[sizes] += 1
                except Exception as error:  # noqa: BLE001  (the next network may be fine)
                    state = "refused" if isinstance(error, ExportError) else "FAIL"
                    said = f"{type(error).__name__} {' '.join(str(error).split())[:200]}"
                count[state] += 1
                print(f"{state:8}{name} {kind}: {said}", flush=True)
        jax.clear_caches()
    print(", ".join(f"{number} {what}" for what, number in count.items()))
    return 1 if count["FAIL"] or not count["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
