"""Eager mode as in a new process: what is counted must not follow from the tests before, nor from a busy machine."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pytest

from fluidjax.eager import forms, kernels, numbers
from fluidjax.eager.recorded import sizes
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.blocks import Blocks
from fluidjax.eager.sequences.points import Tree
from fluidjax.execution.executables import background


def settle() -> None:
    """Run what is pending, and wait for all that is done beside."""
    recorder.flush()
    recorder.blocks.wait()
    background.wait()


@contextlib.contextmanager
def nothing_remembered() -> Iterator[None]:
    """Context manager: sequences, numbers that move and blocks are those of what runs inside, and end with it."""
    settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "_tree", Tree())
        patch.setattr(recorder, "blocks", Blocks())
        patch.setattr(numbers, "_starts", {})
        patch.setattr(sizes, "_bound", WeakKeyDictionary())
        recorder.clear()
        yield
        settle()
    recorder.clear()


@contextlib.contextmanager
def own_kernels() -> Iterator[None]:
    """Context manager: so are kernels, which tests share otherwise because each is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_kernels", {})
        patch.setattr(kernels, "_replaced", OrderedDict())
        patch.setattr(forms, "_forms", {})
        patch.setattr(numbers, "_affines", {})
        yield


@contextlib.contextmanager
def few_kernels() -> Iterator[None]:
    """Context manager: ``own_kernels`` with few spare ones."""
    with own_kernels(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_SPARE", 4)
        yield
