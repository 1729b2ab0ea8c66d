"""Splitting what the user feeds among several devices, and merging what they fetch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.lod import lengths_to_offsets
from fluidjax.base.values import LoDTensor
from fluidjax.execution.scopes.exchange import results
from fluidjax.execution.scopes.fetched import for_user
from fluidjax.framework import Variable

Feed = dict[str, Any]


def one_feed(feed: Any) -> dict[str, Any]:
    """What is fed to one device: a dict, or a list of one."""
    if feed is None:
        return {}
    if isinstance(feed, dict):
        return by_name(feed)
    if not isinstance(feed, (list, tuple)) or not all(isinstance(part, dict) for part in feed):
        raise TypeError(
            f"Executor.run: feed requires a dict from variable name to value (or a list of them), received"
            f" {type(feed).__name__}; write feed={{'x': array}}"
        )
    if len(feed) > 1:
        raise AssertionError(
            f"Not compiled with data parallel: expected one feed for one device, received a list of {len(feed)}; run"
            " fluid.CompiledProgram(program).with_data_parallel(...)"
        )
    return dict(feed[0]) if feed else {}


def by_name(feed: dict[Any, Any]) -> dict[str, Any]:
    """A feed with names as keys, in place of Variables."""
    if all(type(key) is str for key in feed):
        return feed
    return {key.name if isinstance(key, Variable) else key: value for key, value in feed.items()}


def split(value: Any, count: int) -> list[Any]:
    """The shares of ``count`` devices: equally many rows each, the last one what remains. Sequences stay whole.

    There are fewer shares where the rows do not need all devices: for 4 devices, 5 rows are 2, 2 and 1.
    """
    if isinstance(value, LoDTensor):
        return _split_tensor(value, count)
    if isinstance(value, (SelectedRows, LoDTensorArray)):
        raise TypeError(
            f"Executor.run: expected arrays or LoDTensors, which are split over {count} devices, received a"
            f" {type(value).__name__}; feed a list of one dict per device"
        )
    rows = value if isinstance(value, (list, tuple)) or np.ndim(value) else np.reshape(value, 1)
    return [rows[a:b] for a, b in bounds(len(rows), count)]


def bounds(rows: int, count: int) -> list[tuple[int, int]]:
    """Where the shares of ``count`` devices begin and end."""
    if rows == 0:
        return [(0, 0)] * count
    step = -(-rows // count)
    return [(at, min(at + step, rows)) for at in range(0, rows, step)]


def _split_tensor(tensor: LoDTensor, count: int) -> list[LoDTensor]:
    rows, lod = np.asarray(tensor), tensor.lod()
    samples = len(lod[0]) - 1 if lod else len(rows)
    return [_part(rows, lod, a, b) for a, b in bounds(samples, count)]


def _part(rows: np.ndarray, lod: Sequence[Sequence[int]], begin: int, end: int) -> LoDTensor:
    levels = []
    for level in lod:
        offsets = level[begin : end + 1]
        levels.append([n - offsets[0] for n in offsets])
        begin, end = offsets[0], offsets[-1]
    part = LoDTensor()
    part._set_value(rows[begin:end], levels)
    return part


def shares(feed: Any, count: int, persistable: Collection[str], *, partial: bool) -> list[Feed]:
    """The feed of each device.

    Args:
        feed: a dict, which is split; a list of one dict per device, empty ones for idle devices; None.
        count: how many devices there are.
        persistable: variables for which all devices get the same value where one row is fed.
        partial: whether some devices may stay idle; there are fewer dicts then.

    Raises:
        EnforceNotMet: there is nothing for some device, or the variables are fed for different numbers of devices.
        TypeError: the feed is of another kind.
        IndexError: a list is longer than there are devices.
    """
    if isinstance(feed, (list, tuple)):
        found = _listed(feed, count)
    elif feed is None or isinstance(feed, dict):
        found = _split_dict(by_name(feed or {}), count, persistable)
    else:
        raise TypeError(
            f"Executor.run: feed requires a dict from variable name to value (or a list of them), received"
            f" {type(feed).__name__}; write feed={{'x': array}}"
        )
    if len(found) < count and not partial:
        raise EnforceNotMet(
            f"Executor.run: a batch for {count} devices gives {len(found)} of them something to do: expected a share"
            " for each. Feed more samples, drop the last batch (drop_last=True), or use fewer devices (CPU_NUM, places)"
        )
    return found


def _listed(feed: Sequence[Any], count: int) -> list[Feed]:
    for part in feed:
        if not isinstance(part, dict):
            raise TypeError(
                "Each element of feed list should be a dict: expected one dict from variable name to value per device,"
                f" received {type(part).__name__}; write feed=[{{'x': array}}, ...]"
            )
    if len(feed) > count:
        raise IndexError(
            f"Executor.run: a list of {len(feed)} feeds for {count} devices: expected one dict per device; set CPU_NUM,"
            " pass places to with_data_parallel, or feed one dict, which is split"
        )
    return [by_name(part) for part in feed if part] or [{}] * count


def _split_dict(feed: Mapping[str, Any], count: int, persistable: Collection[str]) -> list[Feed]:
    parts = {name: split(value, count) for name, value in feed.items()}
    numbers = {name: len(p) for name, p in parts.items() if name not in persistable or len(p) > 1}
    if len(set(numbers.values())) > 1:
        raise EnforceNotMet(
            f"Executor.run: the feeded number of different non-persistable variables should be the same: expected as"
            f" many shares of each variable, received {numbers}. Feed as many samples of each, or a list of one dict"
            " per device"
        )
    number = max(numbers.values(), default=count)
    return [{name: p[i if len(p) > 1 else 0] for name, p in parts.items()} for i in range(number)]


def form_of_share(value: Any) -> Any:
    """What shares of one form have in common; None for anything but a plain array."""
    if isinstance(value, LoDTensor):
        value = None if value.lod() else value._value
    return (value.shape, value.dtype) if isinstance(value, np.ndarray) and value.ndim and value.size else None


def fed_or_held(part: Feed, held: Feed, name: str) -> Any:
    """What a device is fed of a variable that another device is fed: its share, or what it holds of earlier ones.

    Raises EnforceNotMet where it has neither.
    """
    if name not in part and name not in held:
        raise EnforceNotMet(
            f"Executor.run: feed {name!r}: expected a value for each device, received none for one of them; give each"
            " dict of the list the same names"
        )
    return part.get(name, held.get(name))


def merged(values: Sequence[Any], name: str) -> Any:
    """What the devices fetched as one value, with their rows and sequences one after another.

    Raises EnforceNotMet where the values differ in more than the number of rows, or have none.
    """
    first = values[0]
    if len(values) == 1 and isinstance(first, np.ndarray):
        return np.atleast_1d(first)
    if isinstance(first, list):
        return [merged(parts, name) for parts in zip(*values, strict=True)]
    if not isinstance(first, (LoDTensor, np.ndarray)):
        raise EnforceNotMet(
            f"fetch {name!r}: expected tensors, whose rows are joined over devices, found {type(first).__name__}; pass"
            " return_merged=False to Executor.run"
        )
    shapes = [(v.shape if isinstance(v, np.ndarray) else np.shape(np.asarray(v)))[1:] for v in values]
    if len(set(shapes)) > 1:
        raise EnforceNotMet(
            f"fetch {name!r}: the devices' values differ in more than their rows: expected one shape after the first"
            f" dimension, found {shapes}; pass return_merged=False to Executor.run for a list of them"
        )
    return joined(values) if isinstance(first, LoDTensor) else for_user(np.concatenate([*map(np.atleast_1d, values)]))


def joined(parts: Sequence[Any]) -> Any:
    """Feeds of several devices as one: their rows concatenated, and their sequences too."""
    if not any(isinstance(part, LoDTensor) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    lengths = [part.recursive_sequence_lengths() for part in parts]
    lod = lengths_to_offsets([sum(level, []) for level in zip(*lengths, strict=True)]) if all(lengths) else None
    merged = LoDTensor()  # the LoD may not be of the rows: `accuracy` is one number with the LoD of what it judged
    merged._set_value(np.concatenate([np.array(part) for part in parts]), lod)
    return merged


def all_results(names: Sequence[str], parts: Sequence[Sequence[Any]], return_numpy: bool, *, merge: bool) -> list[Any]:
    """What the user gets for the values that devices left under these names: all joined, or as a list of each's."""
    values = list(zip(*(results(names, of_device, return_numpy) for of_device in parts), strict=True))
    return [merged(of, name) if merge else list(of) for of, name in zip(values, names, strict=True)]
