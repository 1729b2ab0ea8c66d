"""``core.Dataset``: the files of ``fluid.dataset``, described by a line format instead of variables."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format

from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet
from fluidjax.framework import Variable
from fluidjax.proto import data_feed_pb2 as pb
from fluidjax.readers.multi_slot import Sample, read_file, to_feed
from fluidjax.readers.page_views import PageViews
from fluidjax.readers.prefetch import Prefetcher, prefetched

READ_AHEAD = 8  # batches
_IN_MEMORY = "MultiSlotInMemoryDataFeed"

_TYPES = {"uint64": VarType.INT64, "float": VarType.FP32}


@dataclass(frozen=True)
class Slot:
    """The field of a line for one variable."""

    name: str
    dtype: VarType
    used: bool
    lod_level: int
    shape: tuple[int, ...]


class Dataset(PageViews):
    """Samples in text files in the MultiSlot format (see ``fluidjax.readers.multi_slot``).

    Args:
        name: must be "MultiSlotDataset". Raises EnforceNotMet for any other.
    """

    def __init__(self, name: str):
        if name != "MultiSlotDataset":
            raise EnforceNotMet(
                f"core.Dataset: there is no data set {name!r}; expected 'MultiSlotDataset'. Make one of that kind"
            )
        self._desc = pb.DataFeedDesc(pipe_command="cat")
        self._files: list[str] = []
        self._hdfs = "", ""
        self._download_cmd = ""
        self._threads, self._trainers, self._queues = 1, 1, 0
        self._texts: dict[str, bool] = {}
        self._samples: list[Sample] = []
        self._preload: Prefetcher | None = None

    # Settings.

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files, which are read in this order."""
        self._files = list(filelist)

    def get_filelist(self) -> list[str]:
        """The files."""
        return list(self._files)

    def set_thread_num(self, thread_num: int) -> None:
        """No effect: a single thread reads."""
        self._threads = thread_num

    def get_thread_num(self) -> int:
        """The value set by ``set_thread_num``."""
        return self._threads

    def set_trainer_num(self, trainer_num: int) -> None:
        """No effect: one process holds all samples."""
        self._trainers = trainer_num

    def get_trainer_num(self) -> int:
        """The value set by ``set_trainer_num``."""
        return self._trainers

    def set_queue_num(self, queue_num: int) -> None:
        """No effect: there is a single queue."""
        self._queues = queue_num

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """No effect: files are local."""
        self._hdfs = fs_name, fs_ugi

    def get_hdfs_config(self) -> tuple[str, str]:
        """The value set by ``set_hdfs_config``."""
        return self._hdfs

    def set_download_cmd(self, download_cmd: str) -> None:
        """No effect: files are local."""
        self._download_cmd = download_cmd

    def get_download_cmd(self) -> str:
        """The value set by ``set_download_cmd``."""
        return self._download_cmd

    def set_data_feed_desc(self, desc: str) -> None:
        """Set the format of a line and the command that files are piped through: a DataFeedDesc message as text."""
        self._desc = text_format.Parse(desc, pb.DataFeedDesc())

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether a line begins with its id, as a 1 and a word."""
        self._texts["id"] = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether a line has its content, as a 1 and a word, before its numbers."""
        self._texts["content"] = parse_content

    # What Fluid makes ready before a pass: reading begins here with the pass itself.

    def set_generate_unique_feasigns(self, generate_uni_feasigns: bool, shard_num: int = 0) -> None:
        """No effect, as in data sets in memory; the C++ object is not told how many tables there are."""
        super().set_generate_unique_feasigns(generate_uni_feasigns, shard_num)

    def create_channel(self) -> None:
        """A no-op: samples in memory are a list."""

    def create_readers(self) -> None:
        """A no-op: each file is opened when needed."""

    def destroy_readers(self) -> None:
        """A no-op: each file is closed at its end."""

    # Samples.

    def load_into_memory(self) -> None:
        """Load all files into memory."""
        self._samples = list(self._read())

    def preload_into_memory(self) -> None:
        """Start loading all files in a thread; ``wait_preload_done`` waits for it to finish."""
        self._preload = Prefetcher(lambda: [list(self._read())], 1)

    def wait_preload_done(self) -> None:
        """Wait for ``preload_into_memory`` to finish; a no-op if it was not called."""
        if self._preload is not None:
            self._samples, self._preload = next(self._preload), None

    def release_memory(self) -> None:
        """Drop all samples."""
        self._samples = []

    def local_shuffle(self) -> None:
        """Shuffle the samples with Python's global ``random``."""
        random.shuffle(self._samples)

    def global_shuffle(self, thread_num: int) -> None:
        """Shuffle the samples of all workers, of which there is only this process."""
        self.local_shuffle()

    def get_memory_data_size(self) -> int:
        """The number of samples."""
        return len(self._samples)

    def get_shuffle_data_size(self) -> int:
        """The number of samples after a shuffle, which is the same."""
        return len(self._samples)

    def feeds(self, variables: Mapping[str, Variable]) -> Iterator[dict[str, Any]]:
        """The feeds of one pass over memory or, if the description specifies a streaming feed, over the files.

        Args:
            variables: variables by name; slots with other names are skipped.
        """
        return prefetched(lambda: self._make_feeds(variables), READ_AHEAD)

    def _make_feeds(self, variables: Mapping[str, Variable]) -> Iterator[dict[str, Any]]:
        used = [slot.name for slot in self._desc.multi_slot_desc.slots if slot.is_used]
        fed = [(at, variables[name]) for at, name in enumerate(used) if name in variables]
        samples = iter(self._samples) if self._desc.name == _IN_MEMORY else self._read()
        while group := list(itertools.islice(samples, self._desc.batch_size)):
            yield to_feed([[sample[at] for at, _ in fed] for sample in group], [var for _, var in fed])

    def described(self) -> list[Slot]:
        """What the description says of the variables of a line: a dense one has a shape, the others any length."""
        slots = self._desc.multi_slot_desc.slots
        return [
            Slot(s.name, _TYPES[s.type], s.is_used, int(not s.is_dense), (-1, *s.shape) if s.is_dense else (-1, 1))
            for s in slots
        ]

    def _read(self) -> Iterator[Sample]:
        slots: list[Any] = self.described()
        texts = [text for text in ("id", "content") if self._texts.get(text)]
        for path in self._files:
            for sample in read_file(path, self._desc.pipe_command, slots, texts):
                yield Sample(values for slot, values in zip(slots, sample, strict=True) if slot.used)
