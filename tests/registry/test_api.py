"""Every public name that fluidjax has takes the same arguments with the same defaults as in Paddle 1.8.5."""

import pytest

from tests.spec import api
from tests.spec.signatures import check, group_of

GROUPS = sorted({group_of(name) for name in api()})


@pytest.mark.parametrize("group", GROUPS)
def test_signatures(group):
    entries = [check(name) for name in api() if group_of(name) == group]
    differing = [f"{e.name}: {e.problem}" for e in entries if e.state == "differs"]
    assert not differing, "\n".join(differing)


def test_some_names_are_there():
    assert check("paddle.fluid.layers.fc").state == "equal"
