"""``fluid.dataset``: training data in many text files, streamed or held in memory.

Files have the MultiSlot format (see ``fluidjax.readers.multi_slot``). ``Executor.train_from_dataset`` trains on a
dataset; ``DataLoader.from_dataset`` converts it to feeds.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.framework import Variable
from fluidjax.readers.dealt import dealt
from fluidjax.readers.dump import Texts
from fluidjax.readers.multi_slot import Batch, Sample, desc_text, read_file, to_feed
from fluidjax.readers.page_views import PageViews
from fluidjax.readers.prefetch import Dealt, Prefetcher, prefetched
from fluidjax.readers.watching import FetchHandler as FetchHandler

__all__ = ["DatasetFactory", "InMemoryDataset", "QueueDataset"]

READ_AHEAD = 8  # batches


class DatasetBase:
    """Base class of datasets: files, variables and batch size.

    Attributes:
        dataset: its ``core.Dataset``, which has the files and the samples in memory.
    """

    _feed_class = "MultiSlotDataFeed"

    def __init__(self) -> None:
        from fluidjax.readers.multi_slot_dataset import Dataset

        self.dataset = Dataset("MultiSlotDataset")
        self.thread_num = 1
        self.filelist: list[str] = []
        self.use_var: list[Variable] = []
        self.batch_size = 1
        self.pipe_command = "cat"
        self.fea_eval = False
        self._settings: dict[str, Any] = {}

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that each file is piped through to produce MultiSlot text; ``cat`` by default."""
        self.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples per batch."""
        if batch_size < 1:
            raise ValueError(f"set_batch_size expected 1 or more, received {batch_size}; pass a positive number")
        self.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of workers of ``Executor.train_from_dataset``, unless it is given another."""
        self.thread_num = thread_num
        self.dataset.set_thread_num(thread_num)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files, which are read in this order."""
        self.filelist = list(filelist)
        self.dataset.set_filelist(filelist)

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables of a line, in order; float32 or int64. Those without LoD need a known row size."""
        for var in var_list:
            if var.dtype.name not in ("FP32", "INT64"):
                raise ValueError(
                    f"Currently, fluid.dataset only supports dtype=float32 and dtype=int64, but {var.name!r} is "
                    f"{var.dtype}; declare it with one of them"
                )
        self.use_var = list(var_list)

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """No effect: files are local. Download them first, or with the pipe command."""
        self.dataset.set_hdfs_config(fs_name, fs_ugi)

    def set_download_cmd(self, download_cmd: str) -> None:
        """No effect: files are local."""
        self.dataset.set_download_cmd(download_cmd)

    def set_rank_offset(self, rank_offset: str) -> None:
        """No effect: applies to page-view batches only."""
        self._settings["rank_offset"] = rank_offset

    def set_pv_batch_size(self, pv_batch_size: int) -> None:
        """No effect: applies to page-view batches only."""
        self._settings["pv_batch_size"] = pv_batch_size

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Enable ``slots_shuffle``."""
        self.fea_eval = fea_eval
        self.dataset.set_fea_eval(fea_eval, record_candidate_size)

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Raises: only an InMemoryDataset can modify its samples."""
        raise TypeError(f"{type(self).__name__} does not support slots_shuffle, please use InMemoryDataset")

    def desc(self) -> str:
        """The data feed's description, as text."""
        return desc_text(self._feed_class, self.batch_size, self.pipe_command, self.use_var)

    def _samples(self) -> Iterator[Sample]:
        for path in self.filelist:
            yield from self._read(path)

    def _read(self, path: str) -> Iterator[Sample]:
        return read_file(path, self.pipe_command, self.use_var)

    def _parts(self, count: int) -> list[Iterable[Sample]]:
        """The samples in parts for ``count`` workers, who take them in turn: the files."""
        return [self._read(path) for path in self.filelist]

    def _shares(self, count: int) -> list[Iterator[Batch]]:
        """The feeds of one pass for each of ``count`` workers, or of as many as have something to do."""
        self._check_variables()
        parts = self._parts(count)
        dealt = Dealt(parts)
        return [self._batches(itertools.chain.from_iterable(dealt)) for _ in range(min(count, len(parts)))]

    def _feeds(self, drop_last: bool = False) -> Iterator[Batch]:
        """The feeds of one pass."""
        self._check_variables()
        return prefetched(lambda: self._batches(self._samples(), drop_last), READ_AHEAD)

    def _check_variables(self) -> None:
        if not self.use_var:
            raise RuntimeError("the data set has no variables; call set_use_var with those of a line, in its order")

    def _batches(self, samples: Iterator[Sample], drop_last: bool = False) -> Iterator[Batch]:
        while group := list(itertools.islice(samples, self.batch_size)):
            if len(group) == self.batch_size or not drop_last:
                feed = to_feed(group, self.use_var)
                feed.texts = [sample.texts for sample in group]
                yield feed


class QueueDataset(DatasetBase):
    """Streams its files in each pass."""

    def local_shuffle(self) -> None:
        """Raises: a stream cannot be shuffled."""
        raise NotImplementedError(
            f"{type(self).__name__} does not support local shuffle, please use InMemoryDataset for local_shuffle"
        )

    def global_shuffle(self, fleet: Any = None) -> None:
        """Raises: a stream cannot be shuffled."""
        raise NotImplementedError(
            f"{type(self).__name__} does not support global shuffle, please use InMemoryDataset for global_shuffle"
        )


class FileInstantDataset(QueueDataset):
    """Streams its files in each pass."""


class InMemoryDataset(PageViews, DatasetBase):
    """Holds all samples, between ``load_into_memory`` and ``release_memory``."""

    _feed_class = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        # Fluid's settings of it, for scripts to read back.
        self.fleet_send_batch_size: int | None = None
        self.fleet_send_sleep_seconds: int | None = None
        self.is_user_set_queue_num = False
        self.queue_num: int | None = None
        self.parse_ins_id = self.parse_content = self.merge_by_lineid = False
        self._preload: Prefetcher | None = None

    def load_into_memory(self) -> None:
        """Load all files into memory."""
        self.dataset.samples = list(super()._samples())

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Start loading all files in a thread; ``wait_preload_done`` waits for it to finish."""
        self._preload = Prefetcher(lambda: [list(super(InMemoryDataset, self)._samples())], 1)

    def wait_preload_done(self) -> None:
        """Wait for ``preload_into_memory`` to finish."""
        if self._preload is None:
            raise RuntimeError("nothing is being loaded; call preload_into_memory() first")
        self.dataset.samples, self._preload = next(self._preload), None

    def release_memory(self) -> None:
        """Drop all samples."""
        self.dataset.release_memory()

    def local_shuffle(self) -> None:
        """Shuffle the samples with Python's global ``random``."""
        random.shuffle(self._held())

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle the samples of all workers of a fleet, all of which have to call this; without one, local_shuffle.

        Each sample goes to a worker drawn by Python's global ``random``. RuntimeError where workers do not meet.
        """
        if fleet is not None:
            self.dataset.samples = dealt(self._held(), fleet)
        self.local_shuffle()

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Permute the values of some variables among the samples, to see how much a model depends on them."""
        self._held()
        self.dataset.set_data_feed_desc(self.desc())
        self.dataset.slots_shuffle(set(slots))

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """The number of samples; of all workers of a fleet, whose role maker adds them."""
        count = np.array([self.dataset.get_memory_data_size()])
        if fleet is None:
            return int(count[0])
        total = count * 0
        fleet._role_maker.all_reduce_worker(count, total)
        return int(total[0])

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """The number of samples after a shuffle, which is the same."""
        return self.get_memory_data_size(fleet)

    def set_feed_type(self, data_feed_type: str) -> None:
        """Set the name of the feed in ``desc``."""
        self._feed_class = data_feed_type

    def set_queue_num(self, queue_num: int) -> None:
        """No effect: there is a single queue."""
        self.queue_num = queue_num
        self.is_user_set_queue_num = True

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether a line begins with its id, as a 1 and a word; dumps show it."""
        self.parse_ins_id = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether a line has its content, as a 1 and a word, before its numbers; dumps show it."""
        self.parse_content = parse_content

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Lines begin with their ids; samples are not merged by them."""
        self.merge_by_lineid = self.parse_ins_id = True

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """No effect: samples are not sent to other processes."""
        self.fleet_send_batch_size = fleet_send_batch_size

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """No effect: samples are not sent to other processes."""
        self.fleet_send_sleep_seconds = fleet_send_sleep_seconds

    def _read(self, path: str) -> Iterator[Sample]:
        asked = {"id": self.parse_ins_id, "content": self.parse_content}
        return read_file(path, self.pipe_command, self.use_var, [text for text, given in asked.items() if given])

    def _held(self) -> list[Sample]:
        if self.dataset.samples is None:
            raise RuntimeError(
                explain(
                    "the data set's samples are not in memory",
                    "load_into_memory() before they are used or shuffled",
                    "no samples",
                    "call dataset.load_into_memory() once its files and variables are set",
                )
            )
        return self.dataset.samples

    def _samples(self) -> Iterator[Sample]:
        return iter(self._held())

    def _parts(self, count: int) -> list[Iterable[Sample]]:
        """As many parts as workers, of whole batches, but for the last one."""
        samples = self._held()
        batches = -(-len(samples) // self.batch_size)
        step = max(-(-batches // count), 1) * self.batch_size
        return [samples[at : at + step] for at in range(0, len(samples), step)]


class BoxPSDataset(InMemoryDataset):
    """An InMemoryDataset whose passes a BoxPS is told of: there is none, as in Paddle's CPU builds."""

    _feed_class = "PaddleBoxDataFeed"

    def set_date(self, date: str) -> None:
        """Set the date of the next pass, "yyyymmdd". Raises ValueError for a text that is no number."""
        self.date = int(date[:4]), int(date[4:6]), int(date[6:])

    def begin_pass(self) -> None:
        """Begin a pass: the tables are in the scope already."""

    def end_pass(self, need_save_delta: bool) -> None:
        """End a pass: the tables stay in the scope, and nothing is saved."""

    def preload_into_memory(self) -> None:  # type: ignore[override]  # as Paddle's, which takes no number of threads
        """Start loading all files in a thread; ``wait_preload_done`` waits for it to finish."""
        super().preload_into_memory()


class DatasetFactory:
    """Creates datasets by class name."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """A QueueDataset, InMemoryDataset, FileInstantDataset or BoxPSDataset. Raises ValueError for any other name."""
        known = {k.__name__: k for k in (QueueDataset, InMemoryDataset, FileInstantDataset, BoxPSDataset)}
        if datafeed_class not in known:
            raise ValueError(
                f"datafeed class {datafeed_class} does not exist; expected one of {', '.join(known)}; pass its name"
            )
        return known[datafeed_class]()


def feeds_of(dataset: DatasetBase, texts: deque[Texts] | None = None) -> Iterator[Batch]:
    """The feeds of one pass over a data set; their texts are appended to ``texts`` as they are taken."""
    for feed in dataset._feeds():
        if texts is not None:
            texts.append(feed.texts)
        yield feed


def shares_of(dataset: DatasetBase, count: int) -> list[Iterator[Batch]]:
    """The feeds of one pass for each of ``count`` workers, or of as many as have something to do."""
    return dataset._shares(count)
