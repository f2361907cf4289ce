"""Stores: what sets there are, and the arrays in them."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from varve import _arrays, _errors, _native, _program
from varve._program import ProgressCallback

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Part:
    """What one rank, or one file, has of a variable."""

    #: None: of a file that belongs to no rank.
    rank: int | None
    shape: tuple[int, ...]
    #: Where it lies in the whole; None: not said.
    offset: tuple[int, ...] | None
    nbytes: int


class Variable:
    """An array of a set. It is read when it is asked for: ``np.asarray(variable)`` all of it, ``variable[2:4, :, 7]``
    what is asked for, and no more of the store than holds that.

    Indices are those of NumPy; what is not plain numbers and slices reads the whole first.
    """

    def __init__(self, reader: _native.Reader, described: tuple[str, str, int, bool, list[int], int, int]) -> None:
        self._reader = reader
        self.name, self.type_name, element_bytes, self.is_one_array, cells, self.nbytes, self._part_count = described
        self.dtype = _arrays.dtype_of(self.type_name, element_bytes)
        self._shape = tuple(cells)
        self._parts: tuple[Part, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that its parts are together; varve.InvalidArgument: they are none (``rank()``)."""
        if not self.is_one_array:
            raise _errors.InvalidArgument(
                f"each rank has an array of its own: {self.name}", "rank(N) is what rank N has"
            )
        return self._shape

    @property
    def ndim(self) -> int:
        """How many dimensions ``shape`` has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def parts(self) -> tuple[Part, ...]:
        """What ranks, or files, have of it, by rank."""
        if self._parts is None:
            self._parts = tuple(
                Part(None if rank < 0 else rank, tuple(cells), tuple(offset) or None, nbytes)
                for rank, cells, offset, nbytes in self._reader.parts(self.name, self._part_count)
            )
        return self._parts

    def rank(self, rank: int) -> _arrays.Array:
        """What one rank has of it. varve.NotFound: it has none."""
        for part in self.parts:
            if part.rank == rank:
                return self._read(part.shape, rank)
        raise _errors.NotFound(f"rank {rank} has nothing of it: {self.name}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> _arrays.Array:
        array = self._read(self.shape)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __getitem__(self, index: Any) -> Any:
        box = _box(self.shape, index)
        if box is None:
            return np.asarray(self)[index]
        offset, cells, rest = box
        if 0 in cells:
            return np.empty(cells, self.dtype)[rest]
        whole = offset == [0] * len(offset) and tuple(cells) == self.shape
        return self._read(tuple(cells), offset=None if whole else offset)[rest]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimension has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        shape = self._shape if self.is_one_array else f"{self._part_count} arrays"
        return f"<varve.Variable {self.name}: {self.dtype} {shape}>"

    def _read(
        self, shape: tuple[int, ...], rank: int | None = None, offset: list[int] | None = None
    ) -> _arrays.Array:
        into = np.empty(shape, self.dtype)
        cells = None if offset is None else list(shape)
        self._reader.read(self.name, rank, offset, cells, _arrays.address_of(into), into.nbytes)
        return into


def _box(shape: tuple[int, ...], index: Any) -> tuple[list[int], list[int], tuple[Any, ...]] | None:
    """The box that holds what ``index`` names, as offset and cells, and the index within it; None: it is no box."""
    given = index if isinstance(index, tuple) else (index,)
    plain = (slice, int, np.integer, type(Ellipsis))
    if any(not isinstance(one, plain) or isinstance(one, bool) for one in given):
        return None
    named = len(given) - given.count(Ellipsis)
    if named > len(shape) or given.count(Ellipsis) > 1:
        raise IndexError(f"too many indices: the array has {len(shape)} dimensions")
    at = given.index(Ellipsis) if Ellipsis in given else len(given)
    filled = [*given[:at], *[slice(None)] * (len(shape) - named), *given[at + 1:]]
    offset: list[int] = []
    cells: list[int] = []
    rest: list[slice | int] = []
    for one, length in zip(filled, shape, strict=True):
        if isinstance(one, slice):
            start, stop, step = one.indices(length)
            chosen = range(start, stop, step)
            low = min(chosen[0], chosen[-1]) if chosen else 0
            offset.append(low)
            cells.append(abs(chosen[-1] - chosen[0]) + 1 if chosen else 0)
            rest.append(slice(None, None, step))
            continue
        position = int(one) + (length if one < 0 else 0)
        if not 0 <= position < length:
            raise IndexError(f"index {int(one)} of {length}")
        offset.append(position)
        cells.append(1)
        rest.append(0)
    return offset, cells, tuple(rest)


class Checkpoint(Mapping[str, Variable]):
    """A set: its variables by name. What a session protected has the names that it gave; the arrays in a file have the
    name "PATH:NAME"."""

    def __init__(self, store: Store, name: str, record: Mapping[str, Any] | None = None) -> None:
        self._store = store
        self._wanted = name
        self._record = record
        self._reader: _native.Reader | None = None
        self._variables: dict[str, Variable] | None = None

    @property
    def name(self) -> str:
        """job@step."""
        return str(self._record["name"]) if self._record is not None else self._open().set

    @property
    def job(self) -> str:
        """What comes before the @."""
        return self.name.rpartition("@")[0]

    @property
    def step(self) -> int | float:
        """A whole number, or a time such as 0.02."""
        text = self.name.rpartition("@")[2]
        return int(text) if text.isdigit() else float(text)

    @property
    def rank_count(self) -> int:
        """How many ranks made it."""
        return self._open().rank_count

    @property
    def has_all_ranks(self) -> bool:
        """A store that is a node's own has only the ranks of that node."""
        return self._open().has_all_ranks

    @property
    def record(self) -> Mapping[str, Any]:
        """What `varve list --json` says of it."""
        if self._record is None:
            name = self.name
            self._record = next((record for record in self._store._records() if record["name"] == name), None)
            if self._record is None:
                raise _errors.NotFound(f"no such set: {name}")
        return self._record

    @property
    def created(self) -> datetime.datetime:
        """When it was made, by the clock of who made it."""
        return datetime.datetime.fromtimestamp(self.record["created_s"], datetime.timezone.utc)

    @property
    def nbytes(self) -> int:
        """Of its files or variables, as they were."""
        return int(self.record["raw_bytes"])

    def restore(
        self,
        folder: Path,
        *,
        rank: int | None = None,
        overwrite: bool = False,
        keep_going: bool = False,
        progress: ProgressCallback | None = None,
    ) -> dict[str, Any]:
        """Puts its files into a folder (Store.restore())."""
        return self._store.restore(
            self.name, folder, rank=rank, overwrite=overwrite, keep_going=keep_going, progress=progress
        )

    def __getitem__(self, name: str) -> Variable:
        try:
            return self._all()[name]
        except KeyError:
            raise _errors.NotFound(f"no such variable: {name}", f"{self.name} has {_some(self._all())}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"<varve.Checkpoint {self._wanted if self._record is None else self.name}>"

    def _open(self) -> _native.Reader:
        if self._reader is None:
            self._reader = self._store._reader(self._wanted)
        return self._reader

    def _all(self) -> dict[str, Variable]:
        if self._variables is None:
            reader = self._open()
            self._variables = {described[0]: Variable(reader, described) for described in reader.variables()}
        return self._variables


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


class Store:
    """A store: a folder, ``unix:PATH``, ``tcp://HOST:PORT`` or ``s3://BUCKET/PREFIX``; None: ``$VARVE_STORE``.

    ``for checkpoint in store`` goes through all sets, ``store["run@7"]`` is one, ``store["run"]`` the newest of a job.
    What reads arrays is in this process; what saves, restores and compares is the program ``varve``, whose words the
    results have (docs/GUIDE.md, "JSON"). ``progress`` is called with what is done, the bytes of it that are, and how
    many there are: ``lambda phase, done, total: bar.update(done - bar.n)`` for a tqdm.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        create: bool = False,
        key_file: Path | None = None,
        s3_endpoint: str | None = None,
        threads: int | None = None,
    ) -> None:
        said = os.fspath(path) if path is not None else os.environ.get("VARVE_STORE", "")
        if not said:
            raise _errors.InvalidArgument("no store is named", "give its path, or set VARVE_STORE")
        self.path = said
        self._reach = {"key_file": key_file, "s3_endpoint": s3_endpoint}
        self._threads = threads
        if create:
            with contextlib.suppress(_errors.AlreadyExists):
                _program.run("init", dict(self._reach), [self.path])

    def jobs(self) -> dict[str, list[Checkpoint]]:
        """The sets of each job, oldest first."""
        jobs: dict[str, list[Checkpoint]] = {}
        for checkpoint in self:
            jobs.setdefault(checkpoint.job, []).append(checkpoint)
        return jobs

    def __iter__(self) -> Iterator[Checkpoint]:
        for record in self._records():
            yield Checkpoint(self, record["name"], record)

    def __len__(self) -> int:
        return len(self._records())

    def __contains__(self, name: object) -> bool:
        return any(name in (record["name"], record["job"]) for record in self._records())

    def __getitem__(self, name: str) -> Checkpoint:
        checkpoint = Checkpoint(self, name)
        checkpoint._open()
        return checkpoint

    def __repr__(self) -> str:
        return f"varve.Store({self.path!r})"

    def save(
        self,
        folder: Path,
        *,
        job: str | None = None,
        step: int | float | None = None,
        effort: str | None = None,
        raw: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> Checkpoint:
        """Saves a folder as a set: everything or nothing. What is not said is found as `varve save` finds it."""
        options = {"job": job, "step": step, "effort": effort, "raw": raw}
        record = self._run("save", options, [folder], progress)["record"]
        return Checkpoint(self, record["name"], record)

    def restore(
        self,
        name: str,
        folder: Path,
        *,
        rank: int | None = None,
        overwrite: bool = False,
        keep_going: bool = False,
        progress: ProgressCallback | None = None,
    ) -> dict[str, Any]:
        """Puts a set's files below a folder. Every byte is verified before a file gets its name."""
        options = {"rank": rank, "overwrite": overwrite, "keep_going": keep_going}
        return self._run("restore", options, [name, folder], progress)

    def diff(self, a: str, b: str, *, progress: ProgressCallback | None = None) -> dict[str, Any]:
        """Which variables differ between two sets, and by how much."""
        return self._run("diff", {}, [a, b], progress)

    def stat(self, *, progress: ProgressCallback | None = None) -> dict[str, Any]:
        """What is in the store, and what it takes."""
        return self._run("stat", {}, [], progress)

    def verify(self, *, deep: bool = False, progress: ProgressCallback | None = None) -> dict[str, Any]:
        """Looks for damage; ``deep`` reads every byte. "whole" says whether there is none."""
        return self._run("verify", {"deep": deep}, [], progress)

    def drop(self, *names: str) -> None:
        """Removes sets. prune() frees their space."""
        self._run("drop", {}, list(names), None)

    def prune(
        self,
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        job: str | None = None,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> dict[str, Any]:
        """Drops sets by a rule, and frees the space that no set needs."""
        options = {"keep_last": keep_last, "keep_every": keep_every, "job": job, "dry_run": dry_run}
        return self._run("prune", options, [], progress)

    def _run(
        self, command: str, options: Mapping[str, object], arguments: list[Path], progress: ProgressCallback | None
    ) -> dict[str, Any]:
        return _program.run(command, {**options, **self._reach, "store": self.path}, arguments, progress)

    def _records(self) -> list[dict[str, Any]]:
        return list(self._run("list", {}, [], None)["sets"])

    def _reader(self, name: str) -> _native.Reader:
        reach = {key: os.fspath(value) if value is not None else None for key, value in self._reach.items()}
        return _native.Reader(self.path, name, reach["key_file"], reach["s3_endpoint"], self._threads or 0)
