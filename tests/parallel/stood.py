"""Feeds in memory that stays on several devices; run by ``tests.parallel.physical``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.parallel.nets import mlp
from tests.parallel.test_data_parallel import Training, assert_same
from tests.parallel.ways import both, ways

RUNS, ROWS = 7, 10  # the fourth run finds memory for its feeds; no share's bytes are a multiple of what XLA needs


def noisy() -> Any:
    """Draws in each run."""
    loss, feed, _ = mlp()
    noise = layers.gaussian_random([3], std=0.1)
    total = layers.create_global_var([3], 0.0, "float32", persistable=True, name="total")
    layers.sums([total, noise], out=total)
    return loss, feed, [noise]


def standing(training: Training) -> Any:
    """Where feeds of the spread program stand."""
    *_, prepared = (p for p in training.main._prepared_cache.values() if p._job.spread is not None)
    return prepared._compilations.state().standing


def after_runs(net: Any, devices: int = 2) -> tuple[Training, Training]:
    """A training whose feeds stand, and the same on one device, which gave the same so far."""
    spread, one = both(net, devices)
    for step in range(RUNS):
        agree(spread, one, spread.feed(step, ROWS * devices))
    assert ways(spread) == ["spread"] and standing(spread).ran
    several = spread.program._several
    assert several._last is not None and several._last.batch is several._evenly  # so it was repeated
    return spread, one


def names(training: Training) -> list[str]:
    """What is fetched in each run."""
    return [getattr(each, "name", each) for each in (training.loss, *training.more)]


def agree(spread: Training, one: Training, feed: Any) -> None:
    """A batch gives the same in both ways."""
    for found, wanted in zip(spread.run(feed, names(spread)), one.run(feed, names(spread)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
    assert_same(spread.values(), one.values(), 2e-5)


def check_feeds_stand_on_all_devices() -> None:
    """Each run reads what it was fed, from the user's array as it is then; what was fetched stays as it was."""
    spread, _ = after_runs(mlp)
    fed, feed = spread.feed(0, 2 * ROWS), spread.feed(0, 2 * ROWS)
    kept = []
    for number in range(RUNS):
        feed["x"][...] = number
        kept.append(spread.run(feed, ["x", spread.loss], return_numpy=False))
    assert standing(spread).ran
    for number, (x, _) in enumerate(kept):
        np.testing.assert_array_equal(np.array(x), np.full_like(fed["x"], number))
    losses = [np.array(loss) for _, loss in kept]
    assert losses[0].shape == (2,) and not np.array_equal(losses[0], losses[1])


def check_a_batch_in_stages_is_cut_as_one_like_it() -> None:
    """Rows that devices do not share evenly are cut as those of the last batch; any other batch is looked at anew."""
    staged, one = both(mlp, 2)
    agree(staged, one, staged.feed(0, 9))
    several, looks = staged.program._several, []
    shares = several.shares
    several.shares = lambda feed: looks.append(feed) or shares(feed)
    for step, rows in enumerate([9, 9, 7, 7], 1):
        agree(staged, one, staged.feed(step, rows))
    assert [len(feed["x"]) for feed in looks] == [7]
    assert several._last is not None and several._last.batch is several._evenly  # so what is fetched was not looked up
    for feed in ([staged.feed(5, 3), staged.feed(6, 4)], staged.feed(7, 7), staged.feed(8, 8), staged.feed(9, 9)):
        agree(staged, one, feed)
    assert len(looks) == 5 and set(ways(staged)) == {"staged", "spread"}


def check_other_batches_between_those_that_stand() -> None:
    """Views, a list of feeds, and batches of other sizes give what they do on one device."""
    spread, one = after_runs(noisy)
    place = standing(spread)
    feed = spread.feed(20, 2 * ROWS)
    wide = {name: np.repeat(value, 2, axis=0)[::2] for name, value in feed.items()}
    for other in (wide, [spread.feed(21, ROWS), spread.feed(22, ROWS)]):
        agree(spread, one, other)
    assert standing(spread) is place
    agree(spread, one, {name: value.tolist() for name, value in feed.items()})
    for rows in (6, 7, 2 * ROWS, 6, 6, 6, 6):
        agree(spread, one, spread.feed(rows, rows))
    for training in (spread, one):
        training.scope.find_var(next(iter(training.parameters))).get_tensor().set(
            np.zeros_like(next(iter(training.values().values()))), fluid.CPUPlace()
        )
    agree(spread, one, spread.feed(23, 6))


def check_a_bad_label_that_stands_leaves_the_state() -> None:
    """An error of one device is raised, and the next batch goes on."""
    spread, one = after_runs(mlp)
    before, feed = spread.values(), spread.feed(1, 2 * ROWS)
    feed["y"][-1] = 77
    with pytest.raises(fluid.core.EnforceNotMet, match="77"):
        spread.run(feed, names(spread))
    assert_same(spread.values(), before, 0)
    assert standing(spread) is not None
    agree(spread, one, spread.feed(2, 2 * ROWS))


def check_one_device_takes_what_is_fed() -> None:
    """So it does where there is one: batches alike, then others."""
    alone, one = Training(mlp, 1), Training(mlp)
    for step, rows in enumerate([4, 4, 4, 4, 4, 3, 4]):
        agree(alone, one, alone.feed(step, rows))
    two = [alone.feed(0, 2), alone.feed(1, 2)]
    with pytest.raises(IndexError, match="2 feeds for 1 device"):
        alone.run(two)
    agree(alone, one, alone.feed(9, 4))
