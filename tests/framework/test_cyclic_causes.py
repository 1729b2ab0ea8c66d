"""An error that is its own cause's cause is still told, and does not keep the process looking for its origin."""

from fluidjax.base.tracebacks import deliberate, shorten


def test_a_cycle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert not deliberate(one)
    shorten(one)
    assert one.__cause__ is two
