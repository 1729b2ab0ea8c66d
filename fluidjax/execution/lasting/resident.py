"""The state that stays on the device between two runs of a program over one scope."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.scope import Scope
from fluidjax.base.values import Resident
from fluidjax.execution.lasting.standing import Standing
from fluidjax.execution.rooms.families import Family
from fluidjax.execution.steps.buffers import Buffers
from fluidjax.execution.steps.compiled_form import Compiled
from fluidjax.execution.steps.mesh import on_one_device

if TYPE_CHECKING:
    from fluidjax.execution.lasting.standing_rooms import Rooms


class ResidentState:
    """Arrays as a program's runs take and leave them.

    Once the ``writer`` attached it, the scope's tensors refer to them here, and a run that finds the state ``current``
    visits no variable. Whoever gives one of the tensors another value, or changes which variables the scope finds,
    makes the state outdated. It lives as long as one of its tensors.

    Attributes:
        buffers: how the replaced arrays are joined to buffers.
        count: how many buffers runs replace.
        slot: (what the last run left, the buffers first; ...). A run appends to it, which replaces all buffers at once.
        kept: arrays that a run only reads.
        place: puts an array where runs take it from, by the name of its variable ('' where several share a buffer).
        complete: whether a run reads nothing else from the scope, so that the state may be attached.
        attached: whether tensors refer to it.
        names: the names of these tensors.
        compiled: what runs it again, without a look at the scope, by the form of the feeds.
        alone: whether these runs need exclusive use of the scope.
        apart: whether none of their fetches is a variable of the scope.
        last: the step of the last run; of ragged feeds, the family of their sizes.
        prompt: whether a step on what the last run left, and on feeds that stand, is done when it returns.
        standing: where feeds of its form stand, once two runs had it; None: nowhere.
        rooms: where ragged feeds like its stand, once two runs had them; None: nowhere.
        lock: the scope's lock.
    """

    def __init__(
        self,
        replaced: Sequence[Any],
        kept: Sequence[Any],
        *,
        complete: bool,
        pack: bool,
        place: Callable[[Any, str], Any],
        replaced_names: Sequence[str],
        kept_names: Sequence[str],
        fates: Mapping[int, Hashable] = MappingProxyType({}),
    ):
        self.buffers = Buffers.of(replaced, pack=pack, fates=fates)
        self._place, self._buffer_names = place, self.buffers.names(replaced_names)
        buffers = self.place(self.buffers.join(replaced))
        self.slot: deque[Any] = deque([(buffers,)], maxlen=1)
        self.count = len(buffers)
        self._found = tuple(kept)
        self.kept = tuple(map(place, kept, kept_names))
        self.complete = complete
        self.attached = False
        self.names: tuple[str, ...] = ()
        self.compiled: dict[Hashable, Compiled] = {}
        self.alone = True
        self.apart = False
        self.prompt = False
        self.last: Compiled | Family | None = None
        self.standing: Standing | None = None
        self.rooms: Rooms | None = None
        self._valid = False
        self._scope: Callable[[], Scope | None] = lambda: None
        self._edition = 0
        self.lock: Any = threading.RLock()

    def place(self, buffers: Iterable[Any]) -> tuple[Any, ...]:
        """Put the buffers that a run takes where it takes them from."""
        return tuple(map(self._place, buffers, self._buffer_names))

    @property
    def replaced(self) -> tuple[Any, ...]:
        """The buffers that a run takes and leaves changed."""
        return self.slot[0][0][: self.count]

    @replaced.setter
    def replaced(self, buffers: tuple[Any, ...]) -> None:
        self.slot.append((buffers,))
        self.prompt = False

    def attached_to(self, scope: Scope, names: Iterable[str]) -> None:
        """Tensors of ``scope``, replaced ones first, refer to the arrays here."""
        self.names = tuple(names)
        self._found = ()
        self._scope = weakref.ref(scope)
        self.lock = scope._lock
        self._edition = scope._edition
        self.attached = self._valid = True

    def current(self, scope: Scope) -> bool:
        """Whether the state is what ``scope`` holds."""
        return self._valid and self._scope() is scope and self._edition == scope._edition

    def replace(self, buffers: tuple[Any, ...]) -> bool:
        """Keep what a run left; False when some of it is not an array, and so has to go into the scope by name."""
        if not all(type(b) is ArrayImpl for b in buffers):
            return False
        self.replaced = buffers
        return True

    def holds(self, scope: Scope, names: Iterable[str]) -> bool:
        """Whether the tensors ``names`` still have the kept arrays: another thread may have set one meanwhile."""
        for name, array in zip(names, self._found, strict=False):  # after them stand values that no tensor holds
            variable = scope.find_var(name)
            stored = variable._holder._stored if variable is not None else None
            if stored is not array and not isinstance(stored, Resident):
                return False
        return True

    def read(self, index: int) -> Any:
        """The array of a tensor: replaced ones first, then kept ones. A part of a buffer is copied."""
        parts = self.buffers.parts
        if index >= len(parts):
            return on_one_device(self.kept[index - len(parts)])
        part = parts[index]
        if part.start is None:
            return on_one_device(self.slot[0][0][part.buffer])
        with self.lock:
            return np.array(np.asarray(self.slot[0][0][part.buffer])[part.start : part.stop])

    def is_lost(self) -> bool:
        """Whether the step that took the buffers has failed."""
        try:
            jax.block_until_ready(self.replaced)
        except RuntimeError:
            return True
        return any(buffer.is_deleted() for buffer in self.replaced)

    def outdate(self) -> None:
        """A tensor is getting another value: the next run has to look into the scope."""
        self._valid = False

    def leave(self, index: int) -> None:
        """A tensor has another value: let go of its array."""
        parts = self.buffers.parts
        if index >= len(parts):
            self.kept = _without(self.kept, index - len(parts))
        elif parts[index].start is None:
            self.replaced = _without(self.replaced, parts[index].buffer)


def _without(arrays: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return (*arrays[:index], None, *arrays[index + 1 :])
