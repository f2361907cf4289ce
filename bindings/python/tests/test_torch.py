"""State dicts of PyTorch."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import varve

torch = pytest.importorskip("torch")
import varve.torch  # noqa: E402

HERE = pathlib.Path(__file__).parent


def same(a: Any, b: Any) -> bool:
    """Whether two states are alike, to the bit and in their types."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(type(x) is type(y) for x, y in zip(a, b, strict=True)) and all(
            same(a[key], b[key]) for key in a
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def raw(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()) if tensor.numel() else b""


def everything(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    tensors = {
        str(dtype): (torch.rand(3, 5) * 100).to(dtype)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
                      torch.int32, torch.int64, torch.bool, torch.complex64)
    }
    return {
        "tensors": tensors,
        "scalar": torch.tensor(float(seed)),
        "half scalar": torch.tensor(1.5, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 4),
        "slice": torch.rand(6, 6)[::2, 1:],
        "grad": torch.rand(2, requires_grad=True).detach(),
        "optimizer": {0: {"step": torch.tensor(seed), "exp_avg": torch.rand(4)}, 1: None, "0": torch.rand(2)},
        "a/b": torch.rand(1),
        "a": {"b": torch.rand(1)},
        "lr": 0.1,
        "big": 1 << 80,
        "inf": float("inf"),
        "flags": [True, None, "é", (1, 2.5), []],
        "ordered": collections.OrderedDict(z=1, a=torch.rand(2)),
        "numpy": np.arange(3, dtype=">f4"),
        "rows": np.array([(1, [2, 3], (4, b"x"))] * 3,
                         [("a", "<f4"), ("b", "<i8", 2), ("c", [("d", ">i2"), ("e", "S3")])]),
        "aligned": np.zeros((2, 1), np.dtype([("a", "u1"), ("b", "<f8")], align=True)),
        "number": np.float32(2.5),
        "numbers": [np.int64(-3), np.bool_(True), np.complex64(1j), np.datetime64(7, "ms"), np.str_("é")],
        "row": np.array([(1, 2)], "i4,f8")[0],
        "bytes": b"\0\xff",
    }


def test_a_nested_state_comes_back_as_it_was(path: str) -> None:
    states = {step: everything(step) for step in (1, 2, 3)}
    with varve.Session(store=path, job="train") as session:
        assert varve.torch.load(session) is None
        for step, state in states.items():
            varve.torch.save(state, session, step)
            state = None  # what is saved is saved
    with varve.Session(store=path, job="train") as session:
        step, state = varve.torch.load(session)
        assert step == 3
        assert same(state, states[3])
        step, state = varve.torch.load(session, at_most=2)
        assert step == 2
        assert same(state, states[2])
        varve.torch.save(states[1], session, 4)  # the run goes back, and on
    assert same(varve.torch.load(varve.Store(path)["train@4"]), states[1])
    assert same(varve.torch.load(varve.Store(path)["train@3"]), states[3])


def test_the_state_may_change_while_it_is_written(path: str) -> None:
    weights = torch.rand(1 << 20)
    before = weights.clone()
    with varve.Session(store=path, job="train", write_bytes_per_second=8e6, codec="store") as session:
        varve.torch.save({"w": weights}, session, 1)
        weights.fill_(-1)
        assert session.progress().newest_persistent is None
    assert torch.equal(varve.torch.load(varve.Store(path)["train@1"])["w"], before)


def test_what_was_just_saved_is_loaded(path: str) -> None:
    with varve.Session(store=path, job="train", write_bytes_per_second=4e6, codec="store") as session:
        for step in (1, 2):
            state = {"w": torch.rand(1 << 18)}
            varve.torch.save(state, session, step)
            assert session.progress().newest_persistent != step
            found, loaded = varve.torch.load(session)
            assert found == step
            assert same(loaded, state)


def test_tensors_that_come_and_go_are_no_longer_saved(path: str) -> None:
    with varve.Session(store=path, job="train") as session:
        varve.torch.save({"a": torch.zeros(2), "b": torch.zeros(3)}, session, 1)
        varve.torch.save({"b": torch.ones(5), "c": torch.zeros(1)}, session, 2)
    assert sorted(varve.Store(path)["train@2"]) == ["state", "state/b", "state/c"]


@pytest.mark.parametrize("data", [{"lr": 0.5, "x": np.ones(2)}, np.ones(2)], ids=["dict", "array"])
def test_what_the_program_protects_does_not_come_below_a_state(path: str, data: Any) -> None:
    name = "state" if isinstance(data, dict) else "state/x"
    with varve.Session(store=path, job="train") as session:
        session.protect(name, data)
        for call in (lambda: varve.torch.load(session), lambda: varve.torch.save({"w": torch.zeros(2)}, session, 1)):
            with pytest.raises(varve.InvalidArgument, match="in use already, .*: state/") as error:
                call()
            assert "another name" in error.value.hint
        assert varve.torch.load(session, name="other") is None
        varve.torch.save({"w": torch.zeros(2)}, session, 1, name="other")
        # Nor later.
        session.unprotect(name)
        varve.torch.save({"w": torch.zeros(2)}, session, 2)
        with pytest.raises(varve.InvalidArgument, match="in use already, by the state of varve.torch called state"):
            session.protect(name, data)
        session.unprotect("state")
        session.protect(name, data)
        session.checkpoint(3)
    own = ["state/lr", "state/x"] if isinstance(data, dict) else ["state/x"]
    names = [sorted(varve.Store(path)[f"train@{step}"]) for step in (1, 2, 3)]
    others = ["other", "other/w"]
    assert names == [sorted([*others, *own]), [*others, "state", "state/w"], sorted([*others, *own])]


def test_what_else_is_protected_is_loaded_with_a_state(path: str) -> None:
    states: list[Any] = []
    for step in (1, 2):
        own: dict[str, Any] = {"lr": 0.0, "x": np.zeros(2)}
        with varve.Session(store=path, job="train") as session:
            session.protect("own", own)
            states.append((varve.torch.load(session), own["lr"], own["x"].tolist()))
            own.update(lr=step / 2, x=np.full(2, float(step)))
            varve.torch.save({"step": step}, session, step)
    assert states == [(None, 0.0, [0.0, 0.0]), ((1, {"step": 1}), 0.5, [1.0, 1.0])]


def test_what_lies_below_a_state_and_is_none_of_it_is_told(path: str) -> None:
    # The version before let it be there.
    structure = ["dict", [["w", ["tensor", "state/w", "float32", [2]]]]]
    with varve.Session(store=path, job="train") as session:
        session.protect("state/w", np.ones(2, np.float32))
        session.protect("state/x", np.zeros(3))
        session.protect_callbacks("state", lambda: json.dumps(structure).encode(), lambda saved: None)
        session.checkpoint(1)
    with varve.Session(store=path, job="train") as session:
        with pytest.warns(varve.VarveWarning, match="no part of the state was left out: state/x"):
            found = varve.torch.load(session)
    assert same(found, (1, {"w": torch.ones(2)}))
    assert same(varve.torch.load(varve.Store(path)["train@1"]), {"w": torch.ones(2)})


def test_a_save_that_fails_is_in_no_later_one_s_way(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[dict[str, Any]] = [
        {"x": torch.zeros(2), "y": torch.zeros(3)},
        {"x": torch.ones(2, dtype=torch.float64), "a": torch.zeros(5)},  # another type
        {"x": torch.ones(2)},
    ]
    with varve.Session(store=path, job="train") as session:
        varve.torch.save(states[0], session, 1)
        with pytest.raises(varve.InvalidArgument, match="state/y"):
            varve.torch.save({"x": torch.ones(2), "y": object()}, session, 2)
        session.checkpoint(2)  # of what was there
        varve.torch.save(states[1], session, 3)
        with monkeypatch.context() as patched:

            def layout_of(name: str, array: Any) -> Any:
                if name == "state/b":
                    raise KeyboardInterrupt
                return original(name, array)

            original = varve._arrays.layout_of
            patched.setattr("varve._arrays.layout_of", layout_of)
            with pytest.raises(KeyboardInterrupt):
                varve.torch.save({"a": torch.ones(9), "b": torch.zeros(1)}, session, 4)
        session.protect("own", np.zeros(1))
        session.checkpoint(4)  # without half a state
        session.unprotect("own")
        varve.torch.save(states[2], session, 5)
        for step, state in ((1, states[0]), (2, states[0]), (3, states[1]), (5, states[2])):
            assert same(varve.torch.load(session, at_most=step), (step, state))
    assert list(varve.Store(path)["train@4"]) == ["own"]


def test_states_of_two_names_are_loaded_from_a_set(path: str) -> None:
    with varve.Session(store=path, job="train") as session:
        varve.torch.save({"x": 1}, session, 1, name="a")
        varve.torch.save({"x": 2}, session, 2, name="b")
        with pytest.raises(varve.InvalidArgument, match="in use already"):
            varve.torch.save({"x": 3}, session, 3, name="a/b")
    checkpoint = varve.Store(path)["train@2"]
    assert [varve.torch.load(checkpoint, name=name) for name in "ab"] == [{"x": 1}, {"x": 2}]


def test_arrays_that_the_version_before_saved_come_back_as_then(path: str) -> None:
    rows = np.array([(1, 2)] * 3, "f4,i8")
    structure = ["list", [["array", "state/0", "|V12", [3]], ["array", "state/1", "<f4", []]]]
    with varve.Session(store=path, job="train") as session:
        session.protect("state/0", rows)
        session.protect("state/1", np.array(2.5, np.float32))
        session.protect_callbacks("state", lambda: json.dumps(structure).encode(), lambda saved: None)
        session.checkpoint(1)
    assert same(varve.torch.load(varve.Store(path)["train@1"]), [rows.view("V12"), np.array(2.5, np.float32)])


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_state_that_cannot_be_loaded_is_passed_over_with_a_warning(path: str, unreadable: bool) -> None:
    with varve.Session(store=path, job="train", codec="store") as session:
        for step in (1, 2):
            torch.manual_seed(step)
            varve.torch.save({"w": torch.rand(1000)}, session, step, wait=True)
    arenas = sorted(pathlib.Path(path, "arenas").rglob("*.*"), key=lambda file: file.stat().st_mtime_ns)
    newest = [file for file in arenas if file.is_file()][-1]
    content = bytearray(newest.read_bytes())
    for at in range(4096, len(content)):
        content[at] ^= 0x55
    if unreadable:  # it is there, and cannot be opened
        newest.unlink()
        os.mknod(newest, stat.S_IFSOCK | 0o600)
    else:
        newest.write_bytes(content)
    with varve.Session(store=path, job="train") as session:
        with pytest.warns(varve.VarveWarning, match="the checkpoint of step 2 was passed over"):
            step, _ = varve.torch.load(session)
        assert step == 1
        session.drop(1)
        with pytest.raises(varve.IoError if unreadable else varve.Corrupt):
            varve.torch.load(session)


def test_a_state_that_makes_no_sense_is_passed_over(path: str) -> None:
    with varve.Session(store=path, job="train") as session:
        varve.torch.save({"lr": 0.5}, session, 1)
        session.unprotect("state")
        session.protect_callbacks("state", lambda: b"{", lambda saved: None)
        session.checkpoint(2)
    is_told = pytest.warns(varve.VarveWarning, match="the checkpoint of step 2 was passed over: a state is no JSON")
    with varve.Session(store=path, job="train") as session, is_told:
        assert varve.torch.load(session) == (1, {"lr": 0.5})


def test_a_state_in_memory_alone_is_saved_as_it_was_loaded(path: str) -> None:
    program = (
        "import os, sys, torch, varve, varve.torch\n"
        "session = varve.Session(levels='memory; dir:' + sys.argv[1] + ' every=10', job='train')\n"
        "found = varve.torch.load(session)\n"
        "if found is None:\n"
        "    varve.torch.save({'w': torch.arange(1000.0), 'epoch': 7}, session, 1)\n"
        "else:\n"
        "    session.wait()\n"
        "    print(found[0], found[1]['epoch'], found[1]['w'].sum().item(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    # Killed after a checkpoint in memory; after a restart from that, which saves it; after a restart from the store.
    runs = [subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True) for _ in range(3)]
    assert [run.stdout for run in runs] == ["", "1 7 499500.0\n", "1 7 499500.0\n"], [run.stderr for run in runs]
    state = varve.torch.load(varve.Store(path)["train@1"])
    assert state["epoch"] == 7
    assert torch.equal(state["w"], torch.arange(1000.0))


def test_a_view_that_is_not_worked_out_is_saved_as_its_values(path: str) -> None:
    spin = torch.tensor([[1 + 2j, 3 - 4j]])
    state = {"conj": spin.conj(), "neg": spin.conj().imag, "both": spin.conj().t().real}
    with varve.Session(store=path, job="train") as session:
        varve.torch.save(state, session, 1)
    loaded = varve.torch.load(varve.Store(path)["train@1"])
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor.resolve_conj().resolve_neg())


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, {(1, 2): 3}, torch.rand(3, 3).to_sparse(), torch.zeros(2, device="meta"),
     torch.zeros(2, dtype=torch.float16).view(torch.complex32), np.ma.masked_array([1.0, 2.0], [True, False])],
)
def test_what_has_no_bytes_of_its_own_is_refused(path: str, value: Any) -> None:
    with varve.Session(store=path, job="train") as session, pytest.raises(varve.InvalidArgument, match="state/it"):
        varve.torch.save({"it": value}, session, 1)


@pytest.mark.parametrize(
    "structure",
    ["[]", '["tensor"]', '["tensor", "state/w", "nonsense", [2]]', '["tensor", "state/x", "float32", [2]]', "7",
     '["tensor", "state/w", "float32", [3]]', '["dict", [[1]]]', '["none", 1]', '["value"]', "", "{",
     pytest.param("[" * 100000, id="deep"), '["array", "state/w", "(2,f4", [2]]', '["array", "state/w", "O", [1]]',
     '["array", "state/w", {"names": ["a"]}, [2]]', '["scalar", "state/w", ["<f4"], []]',
     '["array", "state/w", [], [2]]',
     '["array", "state/w", {"names": ["a"], "formats": ["O"], "offsets": [0], "itemsize": 8}, [1]]',
     '["tensor", "state/w", "float32", [1e999]]'],
)
def test_a_state_that_makes_no_sense_is_an_error(path: str, structure: str) -> None:
    with varve.Session(store=path, job="train") as session:
        session.protect("state/w", np.zeros(2, np.float32))
        session.protect_callbacks("state", lambda: structure.encode(), lambda saved: None)
        session.checkpoint(1)
    with pytest.raises(varve.Corrupt):
        varve.torch.load(varve.Store(path)["train@1"])


def run_training(store: str, *more: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE.parents[2] / "examples" / "torch" / "train.py"), *more]
    return subprocess.Popen(
        command, env={**os.environ, "VARVE_STORE": store, **environment}, stdout=subprocess.PIPE, text=True
    )


def weights_of(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out.splitlines()[-1]


def test_a_training_that_is_killed_ends_in_the_same_weights(path: str, tmp_path: pathlib.Path) -> None:
    killed = run_training(path, "1000000")
    end = time.monotonic() + 120
    while not (pathlib.Path(path) / "varve.store").exists() or len(varve.Store(path)) < 3:
        assert killed.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    # It may go on from memory, which is ahead of the store.
    steps = str(varve.Store(path)["train"].step + 500)
    assert weights_of(run_training(path, steps)) == weights_of(run_training(str(tmp_path / "whole"), steps))


def test_what_is_alike_on_several_ranks_is_stored_once(path: str) -> None:
    torch.manual_seed(0)
    weights = torch.rand(1 << 18)
    sizes = []
    for count in (1, 4):
        store = f"{path}-{count}"
        run_ranks(count, "replicated", store)
        sizes.append(varve.Store(store).stat()["packed_bytes"])
        for rank in range(count):
            assert torch.equal(varve.torch.load(varve.Store(store)["train"], rank=rank)["weights"], weights)
    assert sizes[1] < 1.05 * sizes[0]


def run_ranks(count: int, what: str, store: str) -> None:
    """The same program on processes of torch.distributed."""
    rendezvous = f"{store}.{what}.{count}.rendezvous"
    processes = [
        subprocess.Popen([sys.executable, str(HERE / "torch_ranks.py"), what, store, rendezvous, str(rank), str(count)])
        for rank in range(count)
    ]
    assert [process.wait(300) for process in processes] == [0] * count


@pytest.mark.parametrize(("before", "now"), [(3, 2), (2, 3), (1, 4)])
def test_another_number_of_processes_goes_on(path: str, before: int, now: int) -> None:
    run_ranks(before, "replicated", path)
    run_ranks(now, "goes_on", path)


def test_shards_are_dealt_out_anew(path: str) -> None:
    run_ranks(4, "shard_save", path)
    whole = np.arange(12 * 5, dtype=np.float32).reshape(12, 5)
    np.testing.assert_array_equal(varve.Store(path)["train@1"]["shards/model.weight"], whole)
    for count in (4, 1, 2, 3):
        run_ranks(count, "shard_load", path)


def test_a_tensor_of_another_type_gets_the_values_that_were_saved(path: str) -> None:
    run_ranks(2, "shard_save", path)
    run_ranks(2, "convert_load", path)


def test_metadata_is_no_pickle(path: str) -> None:
    run_ranks(2, "shard_save", path)
    checkpoint = varve.Store(path)["train@1"]
    told = json.loads(checkpoint[".metadata"].rank(0).tobytes())
    assert told["tensors"]["model.weight"]["size"] == [12, 5]
