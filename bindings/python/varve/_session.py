"""Checkpoints of a running program."""

from __future__ import annotations

import datetime
import json
import operator
import os
import sys
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, cast

import numpy as np

from varve import _arrays, _errors, _native
from varve._dicts import ProtectedDict
from varve._variables import ITSELF, Variables

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
        self._dicts: dict[str, ProtectedDict] = {}
        #: Which of how many ranks this is.
        self.rank = 0 if comm is None else int(comm.rank)
        self.size = 1 if comm is None else int(comm.size)
        self._native = _open(comm, options)
        self._variables = Variables(self._native)
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
        when it is loaded; what was saved as a number, or an array, has to begin as one. A dict that is protected under
        the name of another takes its place.

        Of a dtype that is none of C's numbers, a checkpoint has the bytes: it does not know the unit of a datetime64
        or timedelta64, which are whole numbers of 64 bits to it, nor "f2" from "S2". The same goes for ragged arrays of
        several columns, or of complex numbers: to a checkpoint a row is so many bytes. Protect such an array with the
        dtype that it was saved with: another one of the same size is not refused, and gives the bytes another meaning.

        varve.InvalidArgument: it is no array in one piece, or has a mask, or cannot be written to, or the numbers or
        the order do not fit, or something else has its name, or that of an entry.
        """
        if isinstance(data, MutableMapping):
            if any(said is not None for said in (global_shape, offset, ghosts, order)):
                raise _errors.InvalidArgument(f"a dict has no shape: {name}", "protect its arrays one by one")
            self._protect_dict(name, ProtectedDict(self._variables, name, data, ragged, pickle))
            return
        if ragged or pickle:
            raise _errors.InvalidArgument(
                f"only in a dict can an array be replaced by another, or an object by its copy: {name}",
                "protect {'it': it}, or give callbacks",
            )
        array = _array_of(name, data)
        layout = _arrays.layout_of(name, array, global_shape, offset, ghosts, order)
        self._variables.protect_array(name, ITSELF, array, layout)

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
        self._protect_boxes(name, ITSELF, boxes, global_shape, dtype, order)

    def protect_callbacks(self, name: str, save: Callable[[], bytes], load: Callable[[bytes], None]) -> None:
        """Protects what ``save`` gives as bytes and ``load`` takes back; both run inside ``checkpoint()`` and
        ``restart()``."""
        self._variables.protect(name, ITSELF, lambda: self._native.protect_callbacks(name, save, load))

    def unprotect(self, name: str) -> None:
        """Forgets a variable, or a dict of them."""
        known = self._dicts.pop(name, None)
        if known is not None:
            known.forget()
        else:
            self._variables.unprotect(name)

    def redistribute(self, name: str, how: Literal["none", "same", "evenly", "ignore"]) -> None:
        """What a restart on another number of ranks does with a variable that does not say of what whole it is a part:
        refuse it, give what was the same on all ranks to everybody, deal out the elements of ragged arrays, or leave
        it as it is. ``name`` may be that of a dict: this then counts for what comes into it later, too, and also when
        another dict is protected under the name. "evenly" counts for the arrays of a ragged dict, and for nothing else
        in it."""
        if how not in _REDISTRIBUTE:
            raise _errors.InvalidArgument(f"there is no such way to redistribute a variable: {how}")
        if name in self._dicts:
            self._dicts[name].redistribute(_REDISTRIBUTE[how])
            return
        self._native.redistribute(name, _REDISTRIBUTE[how])
        for known in self._dicts.values():
            known.note_redistribution(name, _REDISTRIBUTE[how])

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
        for known in self._dicts.values():
            known.take()
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
        self._dicts.clear()
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

    def _protect_dict(self, name: str, wanted: ProtectedDict) -> None:
        before = self._dicts.get(name)
        if before is not None:
            wanted.ways = dict(before.ways)
            before.forget()
        try:
            wanted.take()
        except BaseException:
            wanted.forget()
            if before is not None:
                before.take()
            raise
        self._dicts[name] = wanted

    def _protect_boxes(
        self,
        name: str,
        owner: str,
        boxes: Sequence[tuple[Any, Sequence[int]]],
        global_shape: Sequence[int],
        dtype: np.dtype[Any] | str | None = None,
        order: Literal["C", "F"] = "C",
    ) -> None:
        _arrays.check_order(order)
        arrays = [(_array_of(name, data), offset) for data, offset in boxes]
        if dtype is None and not arrays:
            raise _errors.InvalidArgument(f"there is no box: {name}", "say its dtype")
        kind, lead = _arrays.element(np.dtype(dtype) if dtype is not None else arrays[0][0].dtype)
        whole, given = _arrays.counts(name, "global_shape", global_shape), []
        if lead > 1:
            whole.insert(0 if order == "F" else len(whole), lead)
        for array, offset in arrays:
            layout = _arrays.layout_of(name, array, global_shape, offset, order=order)
            if layout.type != kind:
                raise _errors.InvalidArgument(f"a box has another type: {name}")
            given.append((layout.address, layout.count, layout.cells, layout.global_offset, array))
        self._variables.protect(
            name, owner, lambda: self._native.protect_boxes(name, kind, whole, given, order == "F")
        )

    def _loaded(self, load: Callable[[], int | None]) -> int | None:
        for known in self._dicts.values():
            known.take()
        try:
            step = load()
        except _errors.InvalidArgument as error:
            for known in self._dicts.values():
                known.explain(error)
            raise
        if step is not None:
            for known in self._dicts.values():
                known.give_back()
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
