"""What a server makes of the values of a round."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fluidjax.distributed.client import BATCH_BARRIER, FETCH_BARRIER
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.rounds import Rounds
from fluidjax.distributed.settings import SEND_AND_GET
from fluidjax.distributed.wire import LAST, Message
from lowering.values import SelectedRows


def begun(updates: list) -> Rounds:
    """A round of two trainers that both have begun; what the blocks are given goes to ``updates``."""
    shard = SimpleNamespace(received=set(), check_sent=list, update_all=updates.append, values=lambda names: [])
    rounds = Rounds(shard, 2)
    for trainer in (0, 1):
        rounds.handle(Request("GetVariable", Message(trainer=trainer, flags=LAST)))
    return rounds


def test_values_that_trainers_send_under_one_name_are_summed_in_their_order():
    """As those of a distributed table in fleet's sync strategy, of which 1.8.5 keeps whichever comes last."""
    given = []
    rounds = begun(given)
    for trainer in (1, 0):
        dense, row = np.float32([trainer + 1]), np.array([7 - trainer])
        items = [("w", dense), ("table", SelectedRows(row, dense[None], 9)), (BATCH_BARRIER, None)]
        rounds.handle(Request("SendVariable", Message(items, trainer)))
    (found,) = given
    assert found["w"] == [3] and found["table"].rows.tolist() == [7, 6] and found["table"].values.tolist() == [[1], [2]]


def test_a_batch_that_asks_for_values_gets_those_of_after_its_round():
    updates = []
    rounds = begun(updates)
    rounds.shard.values = lambda names: [np.int32(len(updates))] * len(names)

    def exchanged(trainer: int) -> Request:
        items = [(f"w@GRAD.trainer_{trainer}", np.float32([1])), ("w", None)]
        request = Request(SEND_AND_GET, Message(items, trainer, LAST))
        rounds.handle(request)
        return request

    for number in (1, 2):
        first = exchanged(0)
        assert not first.answer.done()
        second = exchanged(1)
        assert [request.answer.result(0).items for request in (first, second)] == [[("w", number)]] * 2
        assert [list(given) for given in updates] == [["w@GRAD.trainer_0", "w@GRAD.trainer_1"]] * number


def test_a_request_that_waits_for_its_phase_is_refused_by_itself():
    """It was refused in the name of the one that turned the phase; the server stopped."""
    rounds = begun([])

    def unknown(names: list[str]) -> list:
        raise RefusedError(f"no {names}")

    rounds.shard.values = unknown
    waiting = Request("GetVariable", Message([("nonsense", None)]))
    rounds.handle(waiting)
    for trainer in (0, 1):
        barrier = Request("SendVariable", Message([(BATCH_BARRIER, None)], trainer))
        rounds.handle(barrier)
        assert barrier.answer.result(0).items == ()
    assert isinstance(waiting.answer.exception(0), RefusedError)


def test_a_fetch_barrier_waits_for_the_round_it_belongs_to():
    """A trainer asks this alone of a server that it fetches nothing from, maybe before others have sent their batch."""
    updates = []
    rounds = begun(updates)

    def asked(trainer: int, notice: str) -> Request:
        request = Request("SendVariable", Message([(notice, None)], trainer))
        rounds.handle(request)
        return request

    for number in (1, 2):
        assert asked(0, BATCH_BARRIER).answer.done()
        fetched = asked(0, FETCH_BARRIER)
        assert not fetched.answer.done() and len(updates) == number - 1
        asked(1, BATCH_BARRIER)
        assert fetched.answer.done() and len(updates) == number
        assert asked(1, FETCH_BARRIER).answer.done()
