"""State dicts of PyTorch, without pickle, while the training goes on::

    with varve.Session(job="train") as session:
        found = varve.torch.load(session)
        if found:
            step, state = found
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        ...
        varve.torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, session, step)

``save()`` returns after the snapshot. Processes of ``torch.distributed`` share a session by ``varve.torch.Ranks()``;
what is alike on several of them is stored once. ``StorageWriter`` and ``StorageReader`` are for
``torch.distributed.checkpoint``, which deals shards out anew to another number of processes.
"""

from __future__ import annotations

import base64
import collections
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch

from varve import _arrays, _errors
from varve._session import _REDISTRIBUTE, Session
from varve._store import Checkpoint

__all__ = ["Ranks", "StorageReader", "StorageWriter", "load", "save"]  # noqa: F822 - two by __getattr__()

#: Types that NumPy does not have, or that compress better as whole numbers of their size.
_AS_NUMBERS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.bool: torch.uint8}


class Ranks:
    """The processes of a process group of ``torch.distributed``, for ``varve.Session(varve.torch.Ranks())``."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.rank: int = torch.distributed.get_rank(group)
        self.size: int = torch.distributed.get_world_size(group)
        self._device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"

    def all_gather(self, mine: bytes) -> list[bytes]:
        """What every process gave."""
        lengths = [torch.zeros(1, dtype=torch.int64, device=self._device) for _ in range(self.size)]
        own = torch.tensor([len(mine)], dtype=torch.int64, device=self._device)
        torch.distributed.all_gather(lengths, own, group=self._group)
        longest = max(int(length) for length in lengths)
        if longest == 0:
            return [b""] * self.size
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8) if mine else padded[:0]
        padded = padded.to(self._device)
        given = [torch.zeros_like(padded) for _ in range(self.size)]
        torch.distributed.all_gather(given, padded, group=self._group)
        return [one.cpu().numpy()[: int(length)].tobytes() for one, length in zip(given, lengths, strict=True)]


def as_array(name: str, tensor: Any) -> _arrays.Array:
    """The memory of a tensor, or of its copy where it lies on a device or not in one piece."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise _errors.InvalidArgument(f"a tensor is sparse or quantized: {name}", "save what it is made of")
    if tensor.is_meta:
        raise _errors.InvalidArgument(f"a tensor of the device \"meta\" has no values: {name}", "leave it out")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype in _AS_NUMBERS:
        plain = plain.view(_AS_NUMBERS[plain.dtype])
    try:
        return cast(_arrays.Array, plain.numpy())
    except TypeError as error:
        raise _errors.InvalidArgument(
            f"NumPy has no type for a tensor of {tensor.dtype}: {name}", "convert it, or view() it as one that it has"
        ) from error


def as_tensor(array: _arrays.Array, dtype: str) -> Any:
    """The tensor that as_array() was given; it has the memory of ``array``."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise _errors.Corrupt(f"there is no such type of tensors: {dtype}")
    if kind.is_complex and array.dtype.kind != "c":
        array = array.view(dtype)
    tensor = torch.from_numpy(array)
    return tensor.view(kind) if kind in _AS_NUMBERS else tensor


class _Packer:
    """Takes a nested state apart: tensors by name, and what is left as JSON."""

    def __init__(self, name: str) -> None:
        self._root = name
        self.arrays: dict[str, _arrays.Array] = {}

    def pack(self, value: Any, path: str) -> Any:
        """A tagged list for each value, so that nothing is taken for another thing when it comes back."""
        if value is None or type(value) in (bool, int, float, str):
            return ["value", value]
        if isinstance(value, torch.Tensor):
            return ["tensor", self._add(path, as_array(path, value)), str(value.dtype).removeprefix("torch."),
                    list(value.shape)]
        if isinstance(value, (np.ndarray, np.generic)):
            if isinstance(value, np.ndarray):
                _arrays.unmasked(path, value)
            array = np.ascontiguousarray(value).reshape(np.shape(value))
            _arrays.element(array.dtype)
            kind = "array" if isinstance(value, np.ndarray) else "scalar"
            return [kind, self._add(path, array), _described(array.dtype), list(array.shape)]
        if isinstance(value, bytes):
            return ["bytes", base64.b64encode(value).decode()]
        if isinstance(value, Mapping):
            kind = "ordered" if isinstance(value, collections.OrderedDict) else "dict"
            return [kind, [[self._key(key, path), self.pack(one, f"{path}/{key}")] for key, one in value.items()]]
        if type(value) in (list, tuple, torch.Size):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, [self.pack(one, f"{path}/{at}") for at, one in enumerate(value)]]
        raise _errors.InvalidArgument(
            f"a {type(value).__name__} is no tensor, number, text, list or dict: {path}", "save what it is made of"
        )

    def _key(self, key: Any, path: str) -> Any:
        if key is not None and type(key) not in (bool, int, float, str):
            raise _errors.InvalidArgument(f"a key is no number or text: {key!r} of {path}")
        return key

    def _add(self, path: str, array: _arrays.Array) -> str:
        # Keys may hold slashes, and 1 and "1" are different ones.
        name, more = path, 1
        while name in self.arrays or name == self._root:
            more += 1
            name = f"{path}#{more}"
        self.arrays[name] = array
        return name


def _described(dtype: np.dtype[Any]) -> Any:
    """A type of NumPy as JSON."""
    if dtype.subdtype is not None:
        return [_described(dtype.subdtype[0]), list(dtype.subdtype[1])]
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_described(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _dtype_of(described: Any) -> np.dtype[Any]:
    """What _described() was given."""
    if isinstance(described, list):
        described = _dtype_of(described[0]), tuple(described[1])
    elif isinstance(described, dict):
        described = {**described, "formats": [_dtype_of(one) for one in described["formats"]]}
    made: np.dtype[Any] = np.dtype(described)
    return made


def _unpack(packed: Any, read: Callable[[str], _arrays.Array]) -> Any:
    """What was packed; ``read`` gives the array of a name."""
    try:
        kind, content = packed[0], packed[1]
        if kind == "value":
            return content
        if kind in ("tensor", "array", "scalar"):
            _, name, dtype, shape = packed
            array = read(name)
            if kind == "tensor":
                return as_tensor(array, dtype).reshape(shape)
            array = array.view(_dtype_of(dtype)).reshape(shape)
            return array if kind == "array" else array[()]
        if kind == "bytes":
            return base64.b64decode(content)
        if kind in ("dict", "ordered"):
            made: dict[Any, Any] = {} if kind == "dict" else collections.OrderedDict()
            for key, one in content:
                made[key] = _unpack(one, read)
            return made
        if kind in ("list", "tuple"):
            ones = [_unpack(one, read) for one in content]
            return ones if kind == "list" else tuple(ones)
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, SyntaxError) as error:
        raise _errors.Corrupt(f"a state does not fit its tensors: {error}") from error
    raise _errors.Corrupt(f"a state has something unknown: {kind}")


def _read_structure(structure: bytes) -> Any:
    try:
        return json.loads(structure)
    except (ValueError, RecursionError) as error:
        raise _errors.Corrupt(f"a state is no JSON: {error}") from error


def _owner(name: str) -> str:
    return f"by the state of varve.torch called {name}"


def save(state: Mapping[str, Any], session: Session, step: int, *, name: str = "state", wait: bool = False) -> None:
    """Makes a checkpoint with a nested dict of tensors, arrays, numbers, text, lists and dicts: each tensor is a
    variable "name/path". Returns after the snapshot, or with ``wait`` when it is in the store; what else the session
    protects is part of it. Tensors on the CPU are not copied beside the snapshot. Collective.

    varve.InvalidArgument: something in it has no bytes of its own, or the session protects something else under the
    name, or under one that begins with "name/". A session is to save under one name: if there are states of two names
    in a checkpoint, a session loads neither; ``load(varve.Store(path)["train@7"], name=...)`` gives each.
    """
    packer = _Packer(name)
    structure = json.dumps(packer.pack(state, name)).encode()
    variables = session._variables
    variables.claim(name, _owner(name))
    try:
        for variable, array in packer.arrays.items():
            if not array.flags.writeable:
                array = array.copy()
            variables.protect_array(variable, _owner(name), array, _arrays.layout_of(variable, array))
        native = variables.native
        variables.protect(name, _owner(name), lambda: native.protect_callbacks(name, lambda: structure, _never))
    except BaseException:
        variables.forget_all(_owner(name))  # some of a state is of no use
        raise
    session.checkpoint(step, wait=wait)


def _never(_saved_bytes: bytes) -> None:
    raise _errors.InvalidArgument("a session that has saved a state restarts by varve.torch.load()")


def load(source: Session | Checkpoint, *, name: str = "state", at_most: int | None = None, rank: int = 0) -> Any:
    """The newest state that is whole.

    Of a session: ``(step, state)``, or None if there is none; what else it protects is loaded, too, and may have
    neither this name nor one that begins with "name/". What save() has on its way is waited for; if that fails, it is a
    warning, and an older one is loaded. It is the same where a newer one is damaged, makes no sense, or cannot be read
    now. Another number of processes gets what was the same on all of them. Collective. Of a set,
    ``varve.Store(path)["train@7"]``: the state of ``rank``, without a session. Tensors are on the CPU.
    """
    if isinstance(source, Checkpoint):
        checkpoint = source
        structure = _read_structure(checkpoint[name].rank(rank).tobytes())
        return _unpack(structure, lambda variable: checkpoint[variable].rank(rank))
    source._variables.claim(name, _owner(name))
    source._variables.forget_all(_owner(name))
    try:
        source.wait()
    except _errors.Error as failure:
        warnings.warn(f"a checkpoint is not there: {failure}", _errors.VarveWarning, stacklevel=2)
    passed_over: dict[int, _errors.Error] = {}
    for step in dict.fromkeys(point.step for point in source.restart_points()):
        if at_most is not None and step > at_most:
            continue
        try:
            state = _load_step(source, name, step)
        except (_errors.Corrupt, _errors.IoError) as error:
            if error.code not in ("corrupt", "io_error"):
                raise
            passed_over[step] = error
            continue
        for newer, why in passed_over.items():
            warnings.warn(f"the checkpoint of step {newer} was passed over: {why}", _errors.VarveWarning, stacklevel=2)
        return step, state
    if passed_over:
        # Before all, that of one which may yet be read.
        failures = list(passed_over.values())
        raise next((one for one in failures if isinstance(one, _errors.IoError)), failures[0])
    return None


def _load_step(session: Session, name: str, step: int) -> Any:
    arrays: dict[str, _arrays.Array] = {}
    structure: list[bytes] = []
    variables, native, same = session._variables, session._native, _REDISTRIBUTE["same"]
    try:
        saved = session.saved_variables(step)
        saved_by = 1 + max((part.rank for variable in saved for part in variable.parts), default=0)
        for variable in saved:
            if not variable.name.startswith(name + "/"):
                continue
            own = [part for part in variable.parts if part.rank == session.rank]
            if not own and saved_by == session.size:
                continue  # another rank's
            array = np.empty((own or variable.parts)[0].shape, variable.dtype)
            variables.protect_array(variable.name, _owner(name), array, _arrays.layout_of(variable.name, array))
            arrays[variable.name] = array
            native.redistribute(variable.name, same)
        # The session may save what it has loaded before restart() returns.
        variables.protect(
            name,
            _owner(name),
            lambda: native.protect_callbacks(name, lambda: structure[-1] if structure else b"", structure.append),
        )
        native.redistribute(name, same)
        session.restart(exactly=step)
    finally:
        variables.forget_all(_owner(name))
    if not structure:
        raise _errors.NotFound(f"the checkpoint of step {step} has no state of this name: {name}")
    try:
        return _state_of(_read_structure(structure[-1]), arrays)
    except _errors.Corrupt as error:
        if session.size == 1:
            raise
        # The others may have theirs: one process alone must not go on to an older step.
        what = f"what this process has of the checkpoint of step {step}"
        raise _errors.Error(f"{what} makes no sense: {error}") from error


def _state_of(structure: Any, arrays: Mapping[str, _arrays.Array]) -> Any:
    used: set[str] = set()

    def read(name: str) -> _arrays.Array:
        used.add(name)
        return arrays[name]

    state = _unpack(structure, read)
    if used != set(arrays):
        left = ", ".join(sorted(set(arrays) - used))
        warnings.warn(f"what is no part of the state was left out: {left}", _errors.VarveWarning, stacklevel=4)
    return state


def __getattr__(name: str) -> Any:
    # torch.distributed.checkpoint is loaded by who uses it.
    if name in ("StorageReader", "StorageWriter"):
        from varve import _torch_storage

        return getattr(_torch_storage, name)
    raise AttributeError(name)
