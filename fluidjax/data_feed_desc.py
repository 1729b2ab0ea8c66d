"""``fluid.data_feed_desc``: the line format read by a data feed, described by a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf import text_format

from fluidjax.proto import data_feed_pb2 as pb

__all__ = ["DataFeedDesc"]


class DataFeedDesc:
    """The description of a data feed.

    Args:
        proto_file: a file containing a DataFeedDesc message as text. Raises ``text_format.ParseError`` otherwise.

    Attributes:
        proto_desc: the message.
    """

    def __init__(self, proto_file: str):
        self.proto_desc = pb.DataFeedDesc(pipe_command="cat")
        with open(proto_file) as file:
            text_format.Parse(file.read(), self.proto_desc)

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples per batch."""
        self.proto_desc.batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Mark slots that have the same number of values in each sample. Raises ValueError for other kinds of feed."""
        for slot in self._slots(dense_slots_name):
            slot.is_dense = True

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Select the slots to feed; slots not marked as used are skipped. Raises ValueError as above."""
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
