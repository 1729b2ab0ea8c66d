"""``fluid.data_feed_desc``: what a data feed reads from a line, described by a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf import text_format

from fluidjax.proto import data_feed_pb2 as pb

__all__ = ["DataFeedDesc"]


class DataFeedDesc:
    """The description of a data feed.

    Args:
        proto_file: a file that holds a DataFeedDesc message as text. ``text_format.ParseError`` for anything else.

    Attributes:
        proto_desc: the message.
    """

    def __init__(self, proto_file: str):
        self.proto_desc = pb.DataFeedDesc(pipe_command="cat")
        with open(proto_file) as file:
            text_format.Parse(file.read(), self.proto_desc)

    def set_batch_size(self, batch_size: int) -> None:
        """The number of samples in a batch."""
        self.proto_desc.batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Say which slots have as many values in each sample. Raises ValueError before a feed of another kind."""
        for slot in self._slots(dense_slots_name):
            slot.is_dense = True

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Say which slots are fed; those that the text does not call used are not. ValueError as above."""
        for slot in self._slots(use_slots_name):
            slot.is_used = True

    def _slots(self, names: Sequence[str]) -> Iterator[pb.Slot]:
        if self.proto_desc.name != "MultiSlotDataFeed":
            raise ValueError(
                "Only MultiSlotDataFeed needs set_dense_slots and set_use_slots: this feed is"
                f" {self.proto_desc.name!r}; expected a MultiSlotDataFeed. Name it so in the text"
            )
        slots = {slot.name: slot for slot in self.proto_desc.multi_slot_desc.slots}
        return (slots[name] for name in names)

    def desc(self) -> str:
        """The message as text."""
        return text_format.MessageToString(self.proto_desc)
