"""Dicts that a session protects: each entry is a variable."""

from __future__ import annotations

import math
import pickle as pickling
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from varve import _arrays, _errors
from varve._variables import Variables

State = MutableMapping[str, Any]

#: VARVE_REDISTRIBUTE_NONE and VARVE_REDISTRIBUTE_EVENLY.
_NONE, _EVENLY = 0, 2


class _Entry:
    """One entry of a dict, as one variable."""

    def __init__(self, variables: Variables, owner: str, name: str, holder: State, key: str) -> None:
        self.variables, self.owner, self.name, self.holder, self.key = variables, owner, name, holder, key

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
            self.variables.protect_array(self.name, self.owner, value, layout)
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
            row_bytes = row if kind == 0 else 0
            self.variables.protect(
                self.name,
                self.owner,
                lambda: self.variables.native.protect_vector(
                    self.name, kind, row_bytes, self._where, self._make_room
                ),
            )

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
            self.variables.protect_array(self.name, self.owner, self.box, _arrays.layout_of(self.name, self.box))
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
    protected, pickled = False, False

    def fits(self, value: Any) -> bool:
        return isinstance(value, (str, bytes))

    def take(self, value: Any) -> None:
        if not self.protected:
            self.variables.protect(
                self.name,
                self.owner,
                lambda: self.variables.native.protect_callbacks(self.name, self._save, self._load),
            )
            self.protected = True

    def _save(self) -> bytes:
        value = self.holder[self.key]
        if isinstance(value, str):
            return b"t" + value.encode()
        return b"b" + bytes(value) if isinstance(value, bytes) else pickling.dumps(value, protocol=5)

    def _load(self, saved: bytes) -> None:
        if saved[:1] in (b"t", b"b"):
            self.holder[self.key] = saved[1:].decode() if saved[:1] == b"t" else saved[1:]
        elif saved[:1] != pickling.PROTO:
            raise _errors.Corrupt(f"a variable is no text: {self.name}")
        elif not self.pickled:
            raise _errors.InvalidArgument(
                f"an object was pickled, and its entry is text now: {self.name}",
                "pickle=True loads it, which runs code of who wrote the store",
            )
        else:
            self.holder[self.key] = pickling.loads(saved)


class _ObjectEntry(_TextEntry):
    """Text, or whatever else goes through pickle: it may be now the one and then the other."""

    pickled = True

    def fits(self, value: Any) -> bool:
        numbers_and_arrays = (bool, int, float, complex, np.generic, np.ndarray, MutableMapping)
        return super().fits(value) or not isinstance(value, numbers_and_arrays)


class ProtectedDict:
    """A dict that is protected: its entries, by the names of their variables."""

    def __init__(self, variables: Variables, name: str, data: State, ragged: bool, pickle: bool) -> None:
        self._variables, self._name, self._data = variables, name, data
        self._owner = f"in the dict {name}"
        texts = _ObjectEntry if pickle else _TextEntry
        self._kinds: list[type[_Entry]] = [_RaggedEntry if ragged else _ArrayEntry, _NumberEntry, texts]
        self._entries: dict[str, _Entry] = {}
        #: How single entries are redistributed, and under the name of the dict how the others are.
        self.ways: dict[str, int] = {}

    def take(self) -> None:
        """Protects what is in the dict now, and forgets what is not any more."""
        found = self._found()
        for name in [name for name in self._entries if name not in found]:
            self._forget(name)
        for name, (holder, key) in found.items():
            value, entry = holder[key], self._entries.get(name)
            if entry is not None and (entry.holder is not holder or not entry.fits(value)):
                self._forget(name)
                entry = None
            if entry is not None:
                entry.take(value)
            else:
                self._add(self._new_entry(name, holder, key), value)

    def give_back(self) -> None:
        for entry in self._entries.values():
            entry.give_back()

    def forget(self) -> None:
        """Protects nothing of it any more."""
        self._entries.clear()
        self._variables.forget_all(self._owner)

    def redistribute(self, how: int) -> None:
        """Says it of all that is in the dict, now and later."""
        if how == _EVENLY and _RaggedEntry not in self._kinds:
            raise _errors.InvalidArgument(
                f"the elements of arrays of a fixed size cannot be divided: {self._name}",
                "protect the dict with ragged=True",
            )
        self.ways = {self._name: how}
        for entry in self._entries.values():
            self._redistribute(entry)

    def note_redistribution(self, name: str, how: int) -> None:
        """Keeps what was said of one entry, for when it is protected anew."""
        if name in self._entries:
            self.ways[name] = how

    def explain(self, error: _errors.InvalidArgument) -> None:
        """Raises what a restart failed with again with what can be done, if an entry is of another type than was
        saved."""
        named = [name for name in self._entries if f"variable '{name}'" in str(error)]
        if named and not error.hint and "in the checkpoint, but protected as" in str(error):
            begin = f"let {named[0]} begin with a value of the type that was saved"
            hint = f"{begin}: 0.0 for F64LE, say, text or None for BYTES"
            raise _errors.InvalidArgument(f"{error} ({hint})", hint, error.remedy) from error

    def _add(self, entry: _Entry, value: Any) -> None:
        self._entries[entry.name] = entry
        try:
            entry.take(value)
            self._redistribute(entry)
        except BaseException:
            self._forget(entry.name)
            raise

    def _forget(self, name: str) -> None:
        del self._entries[name]
        self._variables.forget(name, self._owner)

    def _redistribute(self, entry: _Entry) -> None:
        how = self.ways.get(entry.name, self.ways.get(self._name))
        if how is not None:
            only_vectors = how == _EVENLY and not isinstance(entry, _RaggedEntry)
            self._variables.native.redistribute(entry.name, _NONE if only_vectors else how)

    def _new_entry(self, name: str, holder: State, key: str) -> _Entry:
        for kind in self._kinds:
            entry = kind(self._variables, self._owner, name, holder, key)
            if entry.fits(holder[key]):
                return entry
        raise _errors.InvalidArgument(
            f"there is no way to save a {type(holder[key]).__name__}: {name}",
            "pickle=True saves it; otherwise give callbacks, or take it out of the dict",
        )

    def _found(self) -> dict[str, tuple[State, str]]:
        """Where each variable is; raises if two have one name, or if a name is somebody else's."""
        found: dict[str, tuple[State, str]] = {}
        for name, where in self._walk(self._name, self._data, ()):
            if name in found:
                raise _errors.InvalidArgument(
                    f"two entries of a dict have one name: {name}",
                    'a key with "/" is named as an entry of a dict within: give one of the two another key',
                )
            self._variables.check(name, self._owner)
            found[name] = where
        return found

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
