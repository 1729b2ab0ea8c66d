"""The operator recordings kept with the tests, each as a program of the executor's."""

import pytest

from tests.golden.recordings import op_cases
from tests.golden.test_ops import own_copy as own_copy  # the fixture
from tests.golden.test_ops import problems_of, recorded

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize("op_type", recorded())
def test_recordings_through_the_executor(op_type):
    assert not problems_of(list(op_cases(op_type)), "executor")
