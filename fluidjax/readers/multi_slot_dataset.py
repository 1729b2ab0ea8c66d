"""``core.Dataset``: the files of ``fluid.dataset``, described by a line format instead of variables."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
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

    Attributes:
        samples: those in memory; None: none were loaded.
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
        self._fea_eval = False
        self._sent_at_once = 1024
        self.samples: list[Sample] | None = None
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

    def get_data_feed_desc(self) -> pb.DataFeedDesc:
        """The format of a line and the command, as a message."""
        return self._desc

    def set_fea_eval(self, fea_eval: bool, record_candidate_size: int) -> None:
        """Set whether ``slots_shuffle`` is allowed; it permutes all samples, however many candidates there may be."""
        self._fea_eval = fea_eval

    def set_merge_by_lineid(self, merge_size: int) -> None:
        """Lines begin with their ids."""
        self._texts["id"] = True

    def set_fleet_send_batch_size(self, size: int) -> None:
        """No effect: samples are not sent to other processes."""
        self._sent_at_once = size

    def get_fleet_send_batch_size(self) -> int:
        """The value set by ``set_fleet_send_batch_size``; 1024 at first."""
        return self._sent_at_once

    def set_fleet_send_sleep_seconds(self, seconds: int) -> None:
        """No effect: samples are not sent to other processes."""

    def set_preload_thread_num(self, thread_num: int) -> None:
        """No effect: a single thread reads."""

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

    def create_preload_readers(self) -> None:
        """A no-op: each file is opened when needed."""

    def destroy_preload_readers(self) -> None:
        """A no-op: each file is closed at its end."""

    def dynamic_adjust_channel_num(self, channel_num: int, discard_remaining_ins: bool) -> None:
        """A no-op: samples are dealt to as many workers as there are when they ask."""

    def dynamic_adjust_readers_num(self, thread_num: int) -> None:
        """A no-op: samples are dealt to as many workers as there are when they ask."""

    def register_client2client_msg_handler(self) -> None:
        """A no-op: samples are not sent to other processes."""

    # Samples.

    def load_into_memory(self) -> None:
        """Load all files into memory."""
        self.samples = list(self._read())

    def preload_into_memory(self) -> None:
        """Start loading all files in a thread; ``wait_preload_done`` waits for it to finish."""
        self._preload = Prefetcher(lambda: [list(self._read())], 1)

    def wait_preload_done(self) -> None:
        """Wait for ``preload_into_memory`` to finish; a no-op if it was not called."""
        if self._preload is not None:
            self.samples, self._preload = next(self._preload), None

    def release_memory(self) -> None:
        """Drop all samples."""
        self.samples = None

    def local_shuffle(self) -> None:
        """Shuffle the samples with Python's global ``random``."""
        random.shuffle(self.samples or [])

    def global_shuffle(self, thread_num: int) -> None:
        """Shuffle the samples of all workers, of which there is only this process."""
        self.local_shuffle()

    def merge_by_lineid(self) -> None:
        """A no-op: as in Paddle, lines of one id stay apart in a shuffle of one process."""

    def slots_shuffle(self, slots: Collection[str]) -> None:
        """Permute the values of some variables among the samples, to see how much a model depends on them.

        Raises RuntimeError unless ``set_fea_eval`` allowed it.
        """
        if not self._fea_eval:
            raise RuntimeError("slots_shuffle needs set_fea_eval(record_candidate_size, True) before; call it")
        samples = self.samples or []
        for index, slot in enumerate(slot for slot in self.described() if slot.used):
            if slot.name in slots:
                values = [sample[index] for sample in samples]
                random.shuffle(values)
                for sample, value in zip(samples, values, strict=True):
                    sample[index] = value

    def get_memory_data_size(self) -> int:
        """The number of samples."""
        return len(self.samples or ())

    def get_shuffle_data_size(self) -> int:
        """The number of samples after a shuffle, which is the same."""
        return len(self.samples or ())

    def feeds(self, variables: Mapping[str, Variable]) -> Iterator[dict[str, Any]]:
        """The feeds of one pass over memory or, if the description specifies a streaming feed, over the files.

        Args:
            variables: variables by name; slots with other names are skipped.
        """
        return prefetched(lambda: self._make_feeds(variables), READ_AHEAD)

    def _make_feeds(self, variables: Mapping[str, Variable]) -> Iterator[dict[str, Any]]:
        used = [slot.name for slot in self._desc.multi_slot_desc.slots if slot.is_used]
        fed = [(at, variables[name]) for at, name in enumerate(used) if name in variables]
        samples = iter(self.samples or ()) if self._desc.name == _IN_MEMORY else self._read()
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
