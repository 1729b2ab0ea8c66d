"""Every case of the corpus in a jit and op by op: the same bits, compiled as users' programs are."""

import pytest

from fluidjax import testing

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CASES = [case for case in testing.table() if not case.label]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_jit_equals_interpret(case, rng):
    testing.check_modes(case, rng)
