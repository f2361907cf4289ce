"""Checkpoints of a running program."""

from __future__ import annotations

import datetime
import json
import math
import operator
import os
import pickle as pickling
import sys
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, cast

import numpy as np

from varve import _arrays, _errors, _native

Path = str | os.PathLike[str]


class Ranks(Protocol):
    """Processes that checkpoint together without MPI: what a session has to know of them."""

    rank: int
    size: int

    def all_gather(self, mine: bytes) -> list[bytes]:
        """What every rank gave, by rank. All call it, as often as each other and in the same order."""


@dataclass(frozen=True)
class RestartPoint:
    """A checkpoint that a restart may take."""

    step: int
    #: Ranks of the run that made it; None: not known.
    rank_count: int | None
    #: By the clock of who made it; None: not known, as of what is in memory.
    made_at: datetime.datetime | None
    #: "memory", or the level's name.
    place: str


@dataclass(frozen=True)
class SavedPart:
    """What a rank has saved of a variable, without ghost cells; slowest dimension first."""

    rank: int
    shape: tuple[int, ...]
    #: Where it lies in the whole; None: not said.
    offset: tuple[int, ...] | None


@dataclass(frozen=True)
class SavedVariable:
    """A variable of a checkpoint, known before anything of it is read."""

    name: str
    dtype: np.dtype[Any]
    #: Of all ranks together.
    nbytes: int
    #: Of the whole of which ranks have parts; None: not said.
    global_shape: tuple[int, ...] | None
    parts: tuple[SavedPart, ...]


@dataclass(frozen=True)
class Progress:
    """How far what runs behind the program's back is."""

    #: Step whose snapshot is complete in memory.
    newest_snapshot: int | None
    #: Step whose set is complete in the store.
    newest_persistent: int | None
    #: Bytes of this rank's group that are on their way, and those of them that are dealt with.
    bytes_to_write: int
    bytes_written: int
    #: Checkpoints left out because the one before was busy.
    skipped: int
    #: In words; None if nothing failed.
    last_error: str | None


@dataclass(frozen=True)
class Level:
    """How far one level is."""

    name: str
    #: Step of the newest set that this run brought there.
    newest: int | None
    #: Sets on their way there.
    waiting: int
    last_error: str | None


_REDISTRIBUTE = {"none": 0, "same": 1, "evenly": 2, "ignore": 3}
_DTYPES = ("V1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


class Session:
    """Checkpoints of a running program, in a store or on levels.

    ``comm`` is a communicator of mpi4py, or anything with ``rank``, ``size`` and ``all_gather(bytes)`` (``Ranks``);
    None is a process alone. The options are those of a run (docs/GUIDE.md, "Options of a run"); what is not said here,
    the environment says (``VARVE_STORE``, ...), or the options file, or the default.

    One thread at a time uses a session; every call that waits lets other threads of Python run. What ranks do together
    (opening, ``restart``, ``due``, ``checkpoint``, ``wait``, ``close``, ...) all of them do. Failures are raised as
    ``varve.Error``. As a context it is closed at the end, which waits until all is persistent; an exception on one of
    several ranks abandons it instead, for the others may not come.
    """

    def __init__(
        self,
        comm: Any = None,
        *,
        job: str | None = None,
        store: Path | None = None,
        levels: str | None = None,
        options_file: Path | None = None,
        group: str | None = None,
        effort: str | None = None,
        codec: str | None = None,
        scheme: str | None = None,
        threads: int | None = None,
        when_busy: Literal["wait", "skip", "two_slots", "automatic"] | None = None,
        memory_bytes: int | None = None,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        mean_time_between_failures: float | None = None,
        keep_last: int | None = None,
        write_bytes_per_second: float | None = None,
        stop_after_seconds: float | None = None,
        stop_file: Path | None = None,
        stop_on_signals: bool | None = None,
        low_priority: bool | None = None,
        shared_memory: Path | None = None,
        key_file: Path | None = None,
        snapshot_folder: Path | None = None,
        take_over: bool | None = None,
        print_warnings: bool | None = None,
        wait_limit: float | None = None,
        s3_endpoint: str | None = None,
        variables_may_change: bool | None = None,
        metrics_file: Path | None = None,
        timeline: Path | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "comm")}
        if job is None and options_file is None and "VARVE_JOB" not in os.environ:
            options["job"] = _name_of_program()
        self._states: dict[str, _State] = {}
        #: Which of how many ranks this is.
        self.rank = 0 if comm is None else int(comm.rank)
        self.size = 1 if comm is None else int(comm.size)
        self._native = _open(comm, options)
        # What is on its way is waited for also where nobody closes the session.
        self._at_end = weakref.finalize(self, self._native.close)

    def protect(
        self,
        name: str,
        data: Any,
        *,
        global_shape: Sequence[int] | None = None,
        offset: Sequence[int] | None = None,
        ghosts: int | Sequence[int | tuple[int, int]] | None = None,
        order: Literal["C", "F"] | None = None,
        ragged: bool = False,
        pickle: bool = False,
    ) -> None:
        """Protects an array, or a dict of arrays and numbers, under a name.

        An array of NumPy (or what shares its memory with one: a tensor on the CPU, a buffer) is taken where it lies:
        in one piece, in either order of dimensions. ``restart()`` writes into it. ``global_shape`` and ``offset`` say
        of what array of all ranks it is a part, so that another number of ranks can go on; ``ghosts`` cells at the ends
        of each dimension, ``2`` or ``[(1, 1), (0, 2)]``, are left out. Protect it again when it has moved.

        ``order`` says whether the slowest dimension is the first, "C", or the last, "F", on all ranks alike. It is
        needed where the parts of some ranks may be single columns or rows, or empty, which to NumPy lie in both orders.
        Without it, such a part of a whole has the order that its strides tell, as those of
        ``np.zeros((n, 1), order="F")`` do; where they tell nothing, as those of an empty array, it is "C".

        A dict is looked at anew with each checkpoint: its arrays may be others by then, its entries come and go. Each
        entry is a variable "name/key"; dicts within are taken along. Numbers and text are put back into the dict by
        ``restart()``. ``ragged``: its arrays may have other lengths in each checkpoint, and are new ones in the dict
        after a restart. ``pickle``: whatever else is in it goes through pickle, which runs code of who wrote the store
        when it is loaded.

        Of a dtype that is none of C's numbers, a checkpoint has the bytes: it does not know the unit of a datetime64
        or timedelta64, which are whole numbers of 64 bits to it, nor "f2" from "S2". Protect such an array with the
        dtype that it was saved with: another one of the same size is not refused, and gives the bytes another meaning.

        varve.InvalidArgument: it is no array in one piece, or has a mask, or cannot be written to, or the numbers or
        the order do not fit.
        """
        if isinstance(data, MutableMapping):
            if any(said is not None for said in (global_shape, offset, ghosts, order)):
                raise _errors.InvalidArgument(f"a dict has no shape: {name}", "protect its arrays one by one")
            state = _State(self._native, name, data, ragged, pickle)
            state.take()
            self._states[name] = state
            return
        if ragged or pickle:
            raise _errors.InvalidArgument(
                f"only in a dict can an array be replaced by another, or an object by its copy: {name}",
                "protect {'it': it}, or give callbacks",
            )
        array = _array_of(name, data)
        _protect_array(self._native, name, array, _arrays.layout_of(name, array, global_shape, offset, ghosts, order))

    def protect_boxes(
        self,
        name: str,
        boxes: Sequence[tuple[Any, Sequence[int]]],
        *,
        global_shape: Sequence[int],
        dtype: np.dtype[Any] | str | None = None,
        order: Literal["C", "F"] = "C",
    ) -> None:
        """Protects several boxes of an array of ``global_shape`` that all ranks share, as (array, offset), or none:
        together they are one variable. ``dtype`` is needed where there is none. Arrays in one piece, with the slowest
        dimension first, or with ``order="F"`` last, on all ranks alike."""
        _arrays.check_order(order)
        arrays = [(_array_of(name, data), offset) for data, offset in boxes]
        if dtype is None and not arrays:
            raise _errors.InvalidArgument(f"there is no box: {name}", "say its dtype")
        kind, lead = _arrays.element(np.dtype(dtype) if dtype is not None else arrays[0][0].dtype)
        whole, given = list(global_shape), []
        if lead > 1:
            whole.insert(0 if order == "F" else len(whole), lead)
        for array, offset in arrays:
            layout = _arrays.layout_of(name, array, global_shape, offset, order=order)
            if layout.type != kind:
                raise _errors.InvalidArgument(f"a box has another type: {name}")
            given.append((layout.address, layout.count, layout.cells, layout.global_offset, array))
        self._native.protect_boxes(name, kind, whole, given, order == "F")

    def protect_callbacks(self, name: str, save: Callable[[], bytes], load: Callable[[bytes], None]) -> None:
        """Protects what ``save`` gives as bytes and ``load`` takes back; both run inside ``checkpoint()`` and
        ``restart()``."""
        self._native.protect_callbacks(name, save, load)

    def unprotect(self, name: str) -> None:
        """Forgets a variable, or a dict of them."""
        state = self._states.pop(name, None)
        if state is not None:
            state.drop()
        else:
            self._native.unprotect(name)

    def redistribute(self, name: str, how: Literal["none", "same", "evenly", "ignore"]) -> None:
        """What a restart on another number of ranks does with a variable that does not say of what whole it is a part:
        refuse it, give what was the same on all ranks to everybody, deal out the elements of ragged arrays, or leave
        it as it is. ``name`` may be that of a dict."""
        if how not in _REDISTRIBUTE:
            raise _errors.InvalidArgument(f"there is no such way to redistribute a variable: {how}")
        for variable in self._states[name].names() if name in self._states else [name]:
            self._native.redistribute(variable, _REDISTRIBUTE[how])

    def restart(self, *, at_most: int | None = None, exactly: int | None = None) -> int | None:
        """Loads the newest checkpoint that is whole into what is protected, and returns its step; None: there is none,
        the run begins. ``at_most``: the newest of this step or a lower one. ``exactly``: of this step, or
        varve.NotFound. Also later in a run, which then goes back. Collective."""
        limits = [None if step is None else _step(step) for step in (at_most, exactly)]
        return self._loaded(lambda: self._native.restart(*limits))

    def reject(self) -> int | None:
        """What was loaded last will not do: takes the next older one. None: there is none. Collective."""
        return self._loaded(self._native.reject)

    def drop(self, step: int) -> None:
        """Removes the checkpoint of this step from memory and from all levels. varve.NotFound: there is none.
        Collective."""
        self._native.drop(_step(step))

    def restart_points(self) -> list[RestartPoint]:
        """What a restart may take, the newest first. Collective."""
        return [
            RestartPoint(
                step,
                ranks or None,
                datetime.datetime.fromtimestamp(made_s, datetime.timezone.utc) if made_s else None,
                place,
            )
            for step, ranks, made_s, place in self._native.restart_points()
        ]

    def saved_variables(self, step: int) -> list[SavedVariable]:
        """The variables in the newest checkpoint of this step. Collective."""
        return [
            SavedVariable(
                name,
                np.dtype(_DTYPES[kind] if kind > 0 else f"V{element_bytes}"),
                nbytes,
                tuple(whole) or None,
                tuple(SavedPart(rank, tuple(cells), tuple(at) or None) for rank, cells, at in parts),
            )
            for name, kind, element_bytes, nbytes, whole, parts in self._native.saved_variables(_step(step))
        ]

    def due(self, step: int) -> bool:
        """Whether a checkpoint should be made at this step: the same on all ranks. Collective."""
        return self._native.due(_step(step))

    def checkpoint(self, step: int, *, wait: bool = False) -> None:
        """Takes a snapshot of all that is protected, and has it written while the program goes on; with ``wait``,
        returns when it is complete in the store. Steps grow. If a checkpoint before has failed since, its error is
        raised once; this one is on its way all the same. Collective."""
        step = _step(step)
        for state in self._states.values():
            state.take()
        self._native.checkpoint(step, wait)

    def should_stop(self) -> bool:
        """Whether the program should end, as a signal, a file or the time says; the last checkpoint is made."""
        return self._native.should_stop()

    def wait(self) -> None:
        """Returns when everything is persistent; raises if it is not. Collective."""
        self._native.wait()

    def finish(self, limit_seconds: float) -> None:
        """Waits so long at most, and ends the session. varve.Busy: the newest checkpoint was given up. Collective."""
        self._native.finish(limit_seconds)

    def abandon(self) -> None:
        """Ends the session after a rank has died, without a word to the others: what is on its way to the store is
        given up, what is in memory stays. Not collective."""
        self._native.abandon()

    def close(self) -> None:
        """Waits until everything is persistent, and ends the session. Collective."""
        self._states.clear()
        self._at_end()

    def progress(self) -> Progress:
        """How far what runs behind the program's back is."""
        return Progress(**self._native.progress())

    def levels(self) -> list[Level]:
        """How far each level is, nearest first."""
        return [Level(**level) for level in self._native.levels()]

    def warnings(self) -> list[str]:
        """What the user should know, since the last call."""
        return self._native.warnings()

    def effective_options(self) -> str:
        """The options in effect and where each came from, one a line."""
        return self._native.effective_options()

    def report(self) -> dict[str, Any]:
        """What checkpointing cost and would cost (docs/GUIDE.md), as rank 0 saw it."""
        return cast("dict[str, Any]", json.loads(self._native.report_json()))

    def report_text(self) -> str:
        """The same for people."""
        return self._native.report()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.size > 1:
            self.abandon()
        self.close()

    def _loaded(self, load: Callable[[], int | None]) -> int | None:
        for state in self._states.values():
            state.take()
        step = load()
        if step is not None:
            for state in self._states.values():
                state.give_back()
        return step


def _step(step: int) -> int:
    """A step as the C interface takes it."""
    number = operator.index(step)
    if not 0 <= number < 1 << 64:
        raise _errors.InvalidArgument(f"a step cannot be {number}", "steps are whole numbers from 0 on")
    return number


def _name_of_program() -> str | None:
    """What a job is called where nobody says it: as the script, as that of other languages is called as the program."""
    name = os.path.basename(sys.argv[0] if sys.argv else "").removesuffix(".py")
    return name if name and not name.startswith("-") else None


def _open(comm: Any, options: dict[str, Any]) -> _native.Session:
    if comm is None:
        return _native.Session(options)
    if not hasattr(comm, "py2f"):
        return _native.Session(comm.rank, comm.size, comm.all_gather, options)
    try:
        from varve import _mpi
    except ImportError as missing:
        raise _errors.Unsupported(
            f"this build of varve has no MPI: {missing}", "give an object with rank, size and all_gather()"
        ) from missing
    from mpi4py import MPI

    ours, theirs = _mpi.library(), MPI.Get_library_version()
    if ours.rstrip("\0") != theirs.rstrip("\0"):
        raise _errors.Unsupported(
            f"mpi4py has another MPI library ({theirs.splitlines()[0]}) than varve ({ours.splitlines()[0]})",
            "build varve with the same",
        )
    return _native.Session(_mpi.open(comm.py2f(), options))


def _array_of(name: str, data: Any) -> _arrays.Array:
    """An array that shares the memory of ``data``."""
    if isinstance(data, np.ndarray):
        return data
    if hasattr(data, "detach") and hasattr(data, "numpy"):
        return cast(_arrays.Array, data.detach().numpy())
    if hasattr(data, "__array_interface__"):
        return np.asarray(data)
    try:
        return np.asarray(memoryview(data))
    except TypeError:
        raise _errors.InvalidArgument(
            f"this cannot be changed where it lies: {name}, a {type(data).__name__}",
            "put numbers into a dict, or an array of no dimension; give callbacks for the rest",
        ) from None


def _protect_array(native: _native.Session, name: str, array: _arrays.Array, layout: _arrays.Layout) -> None:
    native.protect_array(
        name,
        layout.type,
        layout.address,
        layout.count,
        layout.cells,
        layout.ghosts_low,
        layout.ghosts_high,
        layout.global_cells,
        layout.global_offset,
        layout.fastest_first,
        array,
    )


State = MutableMapping[str, Any]


class _Entry:
    """One entry of a dict, as one variable."""

    def __init__(self, native: _native.Session, name: str, holder: State, key: str) -> None:
        self.native, self.name, self.holder, self.key = native, name, holder, key

    def fits(self, value: Any) -> bool:
        """Whether it can be this entry's next value."""
        raise NotImplementedError

    def take(self, value: Any) -> None:
        """Protects it as it is now."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Puts what was loaded into the dict."""


class _ArrayEntry(_Entry):
    layout: _arrays.Layout | None = None

    def fits(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def take(self, value: _arrays.Array) -> None:
        layout = _arrays.layout_of(self.name, value)
        if layout != self.layout:
            _protect_array(self.native, self.name, value, layout)
            self.layout = layout


class _RaggedEntry(_Entry):
    array: _arrays.Array | None = None

    def fits(self, value: Any) -> bool:
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            return False
        return self.array is None or (value.dtype == self.array.dtype and value.shape[1:] == self.array.shape[1:])

    def take(self, value: _arrays.Array) -> None:
        _arrays.unmasked(self.name, value)
        if not value.flags.c_contiguous:
            raise _errors.InvalidArgument(f"an array does not lie in one piece: {self.name}")
        if math.prod(value.shape[1:]) * value.dtype.itemsize == 0:
            # There would be elements without memory, and the C interface takes 0 bytes of one for 1.
            raise _errors.InvalidArgument(
                f"an element of a ragged array has no bytes: {self.name}, {value.dtype} of shape {value.shape}",
                "only the first dimension may be empty: take the array out of the dict, or make it with columns",
            )
        begins, self.array = self.array is None, value
        if begins:
            kind, lead = _arrays.element(value.dtype)
            row = int(np.prod(value.shape[1:], dtype=np.int64)) * lead
            if row != 1 or kind == 0:
                kind, row = 0, int(np.prod(value.shape[1:], dtype=np.int64)) * value.dtype.itemsize
            self.native.protect_vector(self.name, kind, row if kind == 0 else 0, self._where, self._make_room)

    def _where(self) -> tuple[int, int]:
        assert self.array is not None
        return _arrays.address_of(self.array), self.array.shape[0]

    def _make_room(self, count: int) -> int:
        assert self.array is not None
        self.array = np.empty((count, *self.array.shape[1:]), self.array.dtype)
        self.holder[self.key] = self.array
        return _arrays.address_of(self.array)


class _NumberEntry(_Entry):
    box: _arrays.Array | None = None
    kind: type = object

    def fits(self, value: Any) -> bool:
        return isinstance(value, (bool, int, float, complex, np.generic))

    def take(self, value: Any) -> None:
        if self.box is None:
            self.box, self.kind = np.array(value), type(value)
            _protect_array(self.native, self.name, self.box, _arrays.layout_of(self.name, self.box))
        elif not np.can_cast(np.array(value).dtype, self.box.dtype, "same_kind"):
            raise _errors.InvalidArgument(
                f"a number was protected as {self.box.dtype}, and is {np.array(value).dtype} now: {self.name}",
                "begin with a number of the kind that it becomes, such as 0.0",
            )
        with np.errstate(over="ignore"):
            self.box[...] = value
        given = value.item() if isinstance(value, np.generic) else value
        if self.box.item() != given and given == given:  # but for NaN
            raise _errors.InvalidArgument(
                f"a number was protected as {self.box.dtype}, which does not hold what it is now: {self.name}",
                "begin with a number of the kind that it becomes, such as np.float64(0)",
            )

    def give_back(self) -> None:
        assert self.box is not None
        value = self.box[()]
        self.holder[self.key] = value if issubclass(self.kind, np.generic) else value.item()


class _TextEntry(_Entry):
    protected = False

    def fits(self, value: Any) -> bool:
        return isinstance(value, (str, bytes))

    def take(self, value: str | bytes) -> None:
        if not self.protected:
            self.native.protect_callbacks(self.name, self._save, self._load)
            self.protected = True

    def _save(self) -> bytes:
        value = self.holder[self.key]
        return b"t" + value.encode() if isinstance(value, str) else b"b" + bytes(value)

    def _load(self, saved: bytes) -> None:
        if saved[:1] not in (b"t", b"b"):
            raise _errors.Corrupt(f"a variable is no text: {self.name}")
        self.holder[self.key] = saved[1:].decode() if saved[:1] == b"t" else saved[1:]


class _PickledEntry(_TextEntry):
    def fits(self, value: Any) -> bool:
        return not isinstance(value, (np.ndarray, bool, int, float, complex, np.generic, str, bytes, MutableMapping))

    def _save(self) -> bytes:
        return pickling.dumps(self.holder[self.key], protocol=5)

    def _load(self, saved: bytes) -> None:
        self.holder[self.key] = pickling.loads(saved)


class _State:
    """A dict that is protected: its entries, by the names of their variables."""

    def __init__(self, native: _native.Session, name: str, data: State, ragged: bool, pickle: bool) -> None:
        self._native, self._name, self._data = native, name, data
        self._kinds: list[type[_Entry]] = [_RaggedEntry if ragged else _ArrayEntry, _NumberEntry, _TextEntry]
        if pickle:
            self._kinds.append(_PickledEntry)
        self._entries: dict[str, _Entry] = {}

    def names(self) -> list[str]:
        return list(self._entries)

    def take(self) -> None:
        """Protects what is in the dict now, and forgets what is not any more."""
        found = dict(self._walk(self._name, self._data, ()))
        for name in [name for name in self._entries if name not in found]:
            del self._entries[name]
            self._native.unprotect(name)
        for name, (holder, key) in found.items():
            value, entry = holder[key], self._entries.get(name)
            if entry is not None and (entry.holder is not holder or not entry.fits(value)):
                del self._entries[name]
                self._native.unprotect(name)
                entry = None
            if entry is None:
                entry = self._new_entry(name, holder, key)
            entry.take(value)
            self._entries[name] = entry

    def give_back(self) -> None:
        for entry in self._entries.values():
            entry.give_back()

    def drop(self) -> None:
        for name in self._entries:
            self._native.unprotect(name)

    def _new_entry(self, name: str, holder: State, key: str) -> _Entry:
        for kind in self._kinds:
            entry = kind(self._native, name, holder, key)
            if entry.fits(holder[key]):
                return entry
        raise _errors.InvalidArgument(
            f"there is no way to save a {type(holder[key]).__name__}: {name}",
            "pickle=True saves it; otherwise give callbacks, or take it out of the dict",
        )

    def _walk(self, prefix: str, holder: State, above: tuple[int, ...]) -> Iterator[tuple[str, tuple[State, str]]]:
        if id(holder) in above:
            raise _errors.InvalidArgument(f"a dict holds itself: {prefix}")
        for key, value in holder.items():
            if not isinstance(key, str):
                raise _errors.InvalidArgument(f"a key is no text: {key!r} of {prefix}")
            name = f"{prefix}/{key}"
            if isinstance(value, MutableMapping):
                yield from self._walk(name, value, (*above, id(holder)))
            else:
                yield name, (holder, key)
