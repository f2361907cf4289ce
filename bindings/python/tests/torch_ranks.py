"""One process of a job of torch.distributed: `torch_ranks.py WHAT STORE RENDEZVOUS RANK COUNT`."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch
import torch.distributed

import varve
import varve.torch

what, store, rendezvous = sys.argv[1:4]
rank, count = int(sys.argv[4]), int(sys.argv[5])
ROWS, COLUMNS = 12, 5


def checkpoint_module() -> Any:
    """torch.distributed.checkpoint, or what it was before. PyTorch 1.13 has a mutable default in a dataclass, which
    Python 3.11 refuses; so it is made hashable."""
    try:
        import torch.distributed.checkpoint as dcp
    except ImportError:
        plain = dataclasses.dataclass

        def lenient(cls: Any = None, **options: Any) -> Any:
            if cls is None:
                return lambda decorated: lenient(decorated, **options)
            if not options.get("frozen") and "__hash__" not in vars(cls):
                options["unsafe_hash"] = True
            return plain(cls, **options)

        dataclasses.dataclass = lenient  # type: ignore[assignment]
        try:
            import torch.distributed._shard.checkpoint as dcp
        finally:
            dataclasses.dataclass = plain
    return dcp


def sharded(values: Any) -> Any:
    """This process's rows of a tensor of all."""
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor

    first, last = ROWS * rank // count, ROWS * (rank + 1) // count
    shard = Shard.from_tensor_and_offsets(values[first:last].clone(), [first, 0], rank)
    return ShardedTensor._init_from_local_shards([shard], ROWS, COLUMNS)


torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=count)
torch.manual_seed(0)
whole = torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS)
if what == "replicated":
    with varve.Session(varve.torch.Ranks(), store=store, job="train", codec="store") as session:
        varve.torch.save({"weights": torch.rand(1 << 18), "step": 1}, session, 1)
elif what == "goes_on":
    with varve.Session(varve.torch.Ranks(), store=store, job="train") as session:
        step, state = varve.torch.load(session)
        assert step == 1
        assert torch.equal(state["weights"], torch.rand(1 << 18))
elif what == "shard_save":
    dcp = checkpoint_module()
    state: dict[str, Any] = {
        "model.weight": sharded(whole),
        "model.bias": torch.full((7,), 0.5, dtype=torch.bfloat16),
        "spin": torch.tensor([[1 - 2j, 3j]]),
        "mask": torch.tensor([True, False]),
        "step": torch.tensor(17),
        "name": "not a tensor",
    }
    with varve.Session(varve.torch.Ranks(), store=store, job="train") as session:
        dcp.save_state_dict(state, varve.torch.StorageWriter(session, 1))
elif what == "shard_load":
    dcp = checkpoint_module()
    state = {
        "model.weight": sharded(torch.zeros(ROWS, COLUMNS)),
        "model.bias": torch.zeros(7, dtype=torch.bfloat16),
        "spin": torch.zeros(1, 2, dtype=torch.complex64),
        "mask": torch.zeros(2, dtype=torch.bool),
        "step": torch.tensor(0),
        "name": "",
    }
    dcp.load_state_dict(state, varve.torch.StorageReader(varve.Store(store)["train@1"]))
    first, last = ROWS * rank // count, ROWS * (rank + 1) // count
    assert torch.equal(state["model.weight"].local_shards()[0].tensor, whole[first:last])
    assert (state["model.bias"] == 0.5).all()
    assert torch.equal(state["spin"], torch.tensor([[1 - 2j, 3j]]))
    assert torch.equal(state["mask"], torch.tensor([True, False]))
    assert state["step"] == 17
    assert state["name"] == "not a tensor"
elif what == "convert_load":
    dcp = checkpoint_module()
    first, last = ROWS * rank // count, ROWS * (rank + 1) // count
    for kind in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int16):
        state = {
            "model.weight": sharded(torch.zeros(ROWS, COLUMNS, dtype=kind)),
            "model.bias": torch.zeros(7, dtype=kind),
            "mask": torch.zeros(2, dtype=kind),
            "step": torch.tensor(0, dtype=kind),
        }
        dcp.load_state_dict(state, varve.torch.StorageReader(varve.Store(store)["train@1"]))
        assert torch.equal(state["model.weight"].local_shards()[0].tensor, whole[first:last].to(kind))
        assert torch.equal(state["model.bias"], torch.full((7,), 0.5).to(kind))
        assert torch.equal(state["mask"], torch.tensor([1, 0]).to(kind))
        assert state["step"] == 17
else:
    sys.exit(f"there is no {what}")
torch.distributed.barrier()
# Else its threads may still run when the process ends, which then aborts.
torch.distributed.destroy_process_group()
