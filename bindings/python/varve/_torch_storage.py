"""Storage for torch.distributed.checkpoint: shards are boxes of one variable, whatever rank has them."""

from __future__ import annotations

import functools
import io
import json
import warnings
from typing import Any

import numpy as np
import torch

from varve import _arrays, _errors
from varve import torch as _torch
from varve._session import Session
from varve._store import Checkpoint

try:  # of today
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import metadata as metadata_types
    from torch.distributed.checkpoint import planner as planner_types
    from torch.distributed.checkpoint.storage import WriteResult
except ImportError:  # of 1.13
    import torch.distributed._shard.checkpoint as dcp
    from torch.distributed._shard.checkpoint import metadata as metadata_types
    from torch.distributed._shard.checkpoint import planner as planner_types
    from torch.distributed._shard.checkpoint.storage import WriteResult

_METADATA = ".metadata"
_OWNER = "by varve.torch.StorageWriter"


def _variable(fqn: str) -> str:
    return f"shards/{fqn}"


class StorageWriter(dcp.StorageWriter):  # type: ignore[misc]
    """Writes a state dict of all processes as the checkpoint of a step: ``save(..., storage_writer=StorageWriter(
    session, step))``. The session is one of all these processes, as of ``varve.Session(varve.torch.Ranks())``. With
    ``wait``, what the caller gets is complete in the store."""

    def __init__(self, session: Session, step: int, *, wait: bool = True) -> None:
        super().__init__()
        self._session, self._step, self._wait = session, step, wait
        self._metadata = b""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Of today's interface; the session and the step are what say where it goes."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id is None

    def storage_meta(self) -> Any:
        return None

    def init(self, is_coordinator: bool) -> None:
        """Nothing is to be prepared."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The same, of today's interface."""

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        self._metadata = _encode_metadata(plans)
        return plans

    def write_data(self, plan: Any, planner: Any) -> Any:
        boxes: dict[str, list[tuple[Any, Any]]] = {}
        wholes: dict[str, Any] = {}
        results = []
        variables, native = self._session._variables, self._session._native
        try:
            for item in plan.items:
                data = planner.resolve_data(item)
                name = _variable(item.index.fqn)
                if item.type == planner_types.WriteItemType.BYTE_IO:
                    content = data.getvalue()
                    size = len(content)
                    give = functools.partial(bytes, content)
                    variables.protect(name, _OWNER, functools.partial(native.protect_callbacks, name, give, _never))
                else:
                    array = _torch.as_array(item.index.fqn, data)
                    size = array.nbytes
                    wholes[name] = list(item.tensor_data.size)
                    boxes.setdefault(name, []).append((array, list(item.tensor_data.chunk.offsets)))
                results.append(WriteResult(index=item.index, size_in_bytes=size, storage_data=None))
            for name, parts in boxes.items():
                if wholes[name]:
                    self._session._protect_boxes(name, _OWNER, parts, wholes[name])
                else:
                    array = parts[0][0]
                    variables.protect_array(name, _OWNER, array, _arrays.layout_of(name, array))
            if self._metadata:
                variables.protect(
                    _METADATA, _OWNER, lambda: native.protect_callbacks(_METADATA, lambda: self._metadata, _never)
                )
            self._session.checkpoint(self._step, wait=self._wait)
        finally:
            variables.forget_all(_OWNER)
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Any, results: Any) -> None:
        """All is in the checkpoint already."""


class StorageReader(dcp.StorageReader):  # type: ignore[misc]
    """Reads what StorageWriter wrote, as far as each process wants it: ``load(..., storage_reader=StorageReader(
    varve.Store(path)["train@7"]))``, on any number of processes. A tensor of another type than was saved gets the
    values, converted as ``Tensor.copy_()`` does."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        self._checkpoint = checkpoint
        self._metadata: Any = None

    def reset(self, checkpoint_id: Any = None) -> None:
        """Of today's interface; the set is what says what is read."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id is None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        return _decode_metadata(_bytes_of(self._checkpoint, _METADATA))

    def init(self, metadata: Any, is_coordinator: bool) -> None:
        self._metadata = metadata

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._metadata = metadata

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Any:
        for item in plan.items:
            name = _variable(item.storage_index.fqn)
            if item.type == planner_types.LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(_bytes_of(self._checkpoint, name)))
                continue
            target = planner.resolve_tensor(item).detach()
            variable = self._checkpoint[name]
            first = item.storage_index.offset or [0] * len(item.lengths)
            begins = [a + b for a, b in zip(first, item.storage_offsets, strict=True)]
            box = tuple(slice(at, at + cells) for at, cells in zip(begins, item.lengths, strict=True))
            array = np.ascontiguousarray(variable[box] if box else np.asarray(variable))
            saved = self._metadata.state_dict_metadata[item.storage_index.fqn].properties.dtype
            target.copy_(_torch.as_tensor(array, str(saved).removeprefix("torch.")).reshape(tuple(item.lengths)))
            planner.commit_tensor(item, target)
        future: torch.futures.Future[None] = torch.futures.Future()
        future.set_result(None)
        return future


def _never(_saved: bytes) -> None:
    raise _errors.InvalidArgument("what torch.distributed.checkpoint saved is loaded by it, with a StorageReader")


def _bytes_of(checkpoint: Checkpoint, name: str) -> bytes:
    variable = checkpoint[name]
    rank = variable.parts[0].rank
    return bytes(variable.rank(rank if rank is not None else 0).tobytes())


def _encode_metadata(plans: list[Any]) -> bytes:
    """What torch.distributed.checkpoint calls the metadata, as JSON: pickle would run code of who wrote the store."""
    entries: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for plan in plans:
        for item in plan.items:
            if item.tensor_data is None:
                entries[item.index.fqn] = None
                continue
            chunk, properties = item.tensor_data.chunk, item.tensor_data.properties
            entry = entries.setdefault(
                item.index.fqn,
                {
                    "dtype": str(properties.dtype).removeprefix("torch."),
                    "requires_grad": bool(properties.requires_grad),
                    "size": list(item.tensor_data.size),
                    "chunks": [],
                },
            )
            entry["chunks"].append([list(chunk.offsets), list(chunk.sizes)])
        if isinstance(plan.planner_data, dict):
            paths.update(plan.planner_data)
    try:
        return json.dumps({"tensors": entries, "paths": paths}).encode()
    except TypeError:
        warnings.warn(
            "what the planner wants to keep beside the tensors is not kept", _errors.VarveWarning, stacklevel=2
        )
        return json.dumps({"tensors": entries, "paths": {}}).encode()


def _decode_metadata(encoded: bytes) -> Any:
    try:
        told = json.loads(encoded)
        entries: dict[str, Any] = {}
        for fqn, entry in told["tensors"].items():
            if entry is None:
                entries[fqn] = metadata_types.BytesStorageMetadata()
                continue
            dtype = getattr(torch, entry["dtype"])
            entries[fqn] = metadata_types.TensorStorageMetadata(
                properties=metadata_types.TensorProperties(dtype=dtype, requires_grad=entry["requires_grad"]),
                size=torch.Size(entry["size"]),
                chunks=[
                    metadata_types.ChunkStorageMetadata(offsets=torch.Size(at), sizes=torch.Size(cells))
                    for at, cells in entry["chunks"]
                ],
            )
        # Paths are tuples there.
        paths = {fqn: tuple(path) if isinstance(path, list) else path for fqn, path in told["paths"].items()}
        return metadata_types.Metadata(state_dict_metadata=entries, planner_data=paths or None)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _errors.Corrupt(f"what is said of the tensors makes no sense: {error}") from error
