"""Reading a network recording (``zoo/<case>``): programs, initial values, feeds, and what Paddle computed."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.recordings import folder
from tests.golden.values import Lod, Tensor, TensorList, Value

# A step whose fetches move by more than this under a 1e-6 change of the parameters is chaotic: not judged.
CHAOTIC = 3e-4


def zoo_cases() -> list[str]:
    """The networks that have recordings."""
    return sorted(p.parent.name for p in (folder() / "zoo").glob("*/meta.json"))


class Arrays(Mapping[str, np.ndarray]):
    """An npz as a mapping; empty where there is no such file."""

    def __init__(self, path: Path) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        if path.exists():
            with np.load(path, allow_pickle=False) as z:
                self._arrays = {k: z[k] for k in z.files}

    def __getitem__(self, key: str) -> np.ndarray:
        return self._arrays[key]

    def __iter__(self):
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def group(self, prefix: str, lods: Mapping[str, Lod]) -> dict[str, Value]:
        """The values under ``prefix``; ``name/0``, ``name/1`` ... are the elements of a tensor array."""
        found: dict[str, Value] = {}
        items: dict[str, dict[int, Tensor]] = {}
        for key in self:
            if not key.startswith(prefix):
                continue
            name = key[len(prefix) :]
            base, _, index = name.rpartition("/")
            if base and index.isdigit():
                items.setdefault(base, {})[int(index)] = Tensor(self[key])
            else:
                found[name] = Tensor(self[key], [list(x) for x in lods.get(name) or []])
        found |= {base: TensorList([parts[i] for i in sorted(parts)]) for base, parts in items.items()}
        return found


@dataclass(frozen=True)
class ZooCase:
    """One recorded network."""

    path: Path

    @property
    def name(self) -> str:
        """The case's folder name."""
        return self.path.name

    @functools.cached_property
    def meta(self) -> dict[str, Any]:
        """``meta.json``."""
        return json.loads((self.path / "meta.json").read_text())

    @functools.cached_property
    def arrays(self) -> dict[str, Arrays]:
        """The case's npz files by stem."""
        return {p.stem: Arrays(p) for p in self.path.glob("*.npz")}

    def file(self, stem: str) -> Arrays:
        """One npz of the case; empty where it has none."""
        return self.arrays.get(stem) or Arrays(self.path / f"{stem}.npz")

    def program(self, key: str) -> bytes:
        """A serialized ProgramDesc: ``main``, ``startup``, ``test``, ``prog_<key>`` or ``extra_<name>``."""
        return gzip.decompress((self.path / f"{key}.bin.gz").read_bytes())

    def has_program(self, key: str) -> bool:
        """Whether the case has that program."""
        return (self.path / f"{key}.bin.gz").exists()

    def initial_values(self) -> dict[str, Tensor]:
        """The persistable variables right after the startup program."""
        values = {name: Tensor(array) for name, array in self.file("init").items()}
        for name, rule in self.meta["init_rules"].items():
            var = self.meta["vars"][name]
            values[name] = Tensor(_by_rule(rule, var["shape"], var["dtype"]))
        return values

    def schedule(self, step: int) -> tuple[str, list[str]]:
        """(program key, fetch list) of a step."""
        key = self.meta["schedule"][step] if self.meta["schedule"] else "main"
        if key == "main":
            return "main", self.meta["fetch"]
        return f"prog_{key}", self.meta["programs"][key]["fetch"]

    def feeds(self, step: int) -> dict[str, Value]:
        """What is fed in a step."""
        return self.file("feeds").group(f"b{step}/", self.meta["feed_lod"][step])

    def fetches(self, step: int) -> dict[str, Value]:
        """What Paddle fetched in a step."""
        return self.file("outs").group(f"s{step}/", self.meta["fetch_lod"][step])

    def sensitivity(self, step: int) -> dict[str, float]:
        """How much each float fetch of a step moves when the parameters are changed by 1e-6 (integers: 0)."""
        _, fetch = self.schedule(step)
        return {n: v or 0.0 for n, v in zip(fetch, self.meta["sensitivity"]["fetch_rel"][step], strict=True)}

    def trace(self) -> dict[str, Any] | None:
        """``trace0.json``: every temporary of step 0."""
        path = self.path / "trace0.json.gz"
        return json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None

    def rows_fed(self, step: int) -> int:
        """The largest leading dimension that is fed: the samples of a step."""
        shapes = [v.array.shape for v in self.feeds(step).values() if isinstance(v, Tensor) and v.array is not None]
        return max((s[0] for s in shapes if s), default=1)


def _by_rule(rule: dict[str, float], shape: list[int], dtype: str) -> np.ndarray:
    if "const" in rule:
        return np.full(shape, rule["const"], dtype)
    draw = np.random.RandomState(int(rule["seed"])).uniform(-1, 1, shape)
    return (draw * rule["halfwidth"] + rule["mean"]).astype("float32")


def zoo_case(name: str) -> ZooCase:
    """The recording of a network."""
    return ZooCase(folder() / "zoo" / name)
