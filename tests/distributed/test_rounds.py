"""What a server makes of the values of a round."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fluidjax.distributed.client import BATCH_BARRIER
from fluidjax.distributed.requests import Request
from fluidjax.distributed.rounds import Rounds
from fluidjax.distributed.wire import LAST, Message
from lowering.values import SelectedRows


def test_values_that_trainers_send_under_one_name_are_summed_in_their_order():
    """As those of a distributed table in fleet's sync strategy, of which 1.8.5 keeps whichever comes last."""
    given = []
    shard = SimpleNamespace(received=set(), check_sent=list, update_all=given.append, values=lambda names: [])
    rounds = Rounds(shard, 2)
    for trainer in (0, 1):
        rounds.handle(Request("GetVariable", Message(trainer=trainer, flags=LAST)))
    for trainer in (1, 0):
        dense, row = np.float32([trainer + 1]), np.array([7 - trainer])
        items = [("w", dense), ("table", SelectedRows(row, dense[None], 9)), (BATCH_BARRIER, None)]
        rounds.handle(Request("SendVariable", Message(items, trainer)))
    (found,) = given
    assert found["w"] == [3] and found["table"].rows.tolist() == [7, 6] and found["table"].values.tolist() == [[1], [2]]
