"""What is in a store."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import varve


def test_sets_are_listed_by_job(filled: varve.Store) -> None:
    assert [one.name for one in filled] == ["run@1", "run@2", "run@3"]
    assert len(filled) == 3
    assert "run@2" in filled
    assert "run" in filled
    assert "run@9" not in filled
    assert [one.step for one in filled.jobs()["run"]] == [1, 2, 3]
    newest = filled["run"]
    assert (newest.name, newest.job, newest.step, newest.rank_count) == ("run@3", "run", 3, 1)
    assert newest.created.year >= 2024
    assert newest.nbytes >= 6 * 7 * 8 * 8


def test_a_set_is_a_mapping_of_arrays(filled: varve.Store) -> None:
    checkpoint = filled["run@2"]
    assert sorted(checkpoint) == ["field", "state/name", "state/time"]
    assert "field" in checkpoint
    assert checkpoint["state/time"].shape == ()
    assert float(np.asarray(checkpoint["state/time"])) == 1.0
    assert checkpoint["field"].rank(0).shape == (6, 7, 8)
    with pytest.raises(varve.NotFound, match="no such variable"):
        checkpoint["pressure"]
    with pytest.raises(varve.NotFound, match="rank 3"):
        checkpoint["field"].rank(3)


INDICES: list[Any] = [
    ...,
    0,
    -1,
    (2, 3, 4),
    slice(2, 5),
    (slice(None), 3),
    (slice(None, None, -1), slice(1, 6, 2), -2),
    (Ellipsis, slice(7, 2, -3)),
    (1, Ellipsis),
    (slice(4, 4), 0),
    (slice(5, 1), slice(None), slice(None)),
    [0, 2],
    (slice(None), [1, 2], 0),
    np.int64(3),
]


@pytest.mark.parametrize(
    ("dtype", "stored", "more"),
    [("c8", "f4", (2,)), ("c16", "f8", (2,)), ("?", "u1", ()), ("M8[ns]", "i8", ()), ("m8[s]", "i8", ()),
     ("f2", "u1", (2,)), ("longdouble", "u1", (np.dtype("longdouble").itemsize,)), (">f8", "u1", (8,)),
     (">M8[s]", "u1", (8,)), ("S5", "u1", (5,)), ("U3", "u1", (12,))],
)
def test_what_has_no_type_in_a_set_is_what_lies_in_memory(
    path: str, dtype: str, stored: str, more: tuple[int, ...]
) -> None:
    """docs/GUIDE.md, "Python", has the table."""
    array = np.arange(6).reshape(2, 3).astype(dtype)
    turned = np.asfortranarray(array)
    with varve.Session(store=path, job="run") as session:
        session.protect("array", array)
        session.protect("turned", turned)
        session.checkpoint(1)
    for name, wanted in (("array", array), ("turned", array.T)):
        found = np.asarray(varve.Store(path)["run@1"][name])
        assert found.dtype == stored
        assert found.shape == (*wanted.shape, *more)
        again = found.view(dtype)[..., 0] if more else found.view(dtype)
        np.testing.assert_array_equal(again, wanted)
    kept = array.copy()
    array[...] = np.zeros(1, dtype)
    with varve.Session(store=path, job="run") as session:
        session.protect("array", array)
        session.protect("turned", turned)
        assert session.restart() == 1
    np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("index", INDICES)
def test_slices_are_those_of_numpy(filled: varve.Store, index: Any) -> None:
    whole = np.arange(6 * 7 * 8, dtype=float).reshape(6, 7, 8) + 3
    read = filled["run"]["field"][index]
    np.testing.assert_array_equal(read, whole[index])
    assert np.shape(read) == np.shape(whole[index])


def test_indices_beyond_the_array_are_errors(filled: varve.Store) -> None:
    for index in (6, -7, (0, 0, 0, 0), (Ellipsis, Ellipsis)):
        with pytest.raises(IndexError):
            filled["run"]["field"][index]


def test_a_slice_reads_what_it_needs(path: str) -> None:
    array = np.random.default_rng(0).random((64, 1 << 16))  # 32 MiB that do not compress
    with varve.Session(store=path, job="x", codec="store") as session:
        session.protect("array", array)
        session.checkpoint(1)
    program = (
        "import sys, varve\n"
        "variable = varve.Store(sys.argv[1])['x']['array']\n"
        "begin = int(open('/proc/self/io').read().split()[1])\n"
        "variable[40, 100:200]\n"
        "print(int(open('/proc/self/io').read().split()[1]) - begin)\n"
    )
    read = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True, text=True).stdout
    assert 0 < int(read) < array.nbytes / 4


def test_folders_are_saved_compared_and_restored(path: str, tmp_path: pathlib.Path) -> None:
    store = varve.Store(path, create=True)
    varve.Store(path, create=True)  # it is there already
    folder = tmp_path / "dump0007"
    folder.mkdir()
    (folder / "rank0").write_bytes(np.arange(100_000.0).tobytes())
    told: list[tuple[str, int, int]] = []
    saved = store.save(folder, job="job with space", progress=lambda *facts: told.append(facts))
    assert saved.name == "job with space@7"
    assert told[-1][1] == told[-1][2] == 800_000
    changed = np.arange(100_000.0)
    changed[7] = -1
    (folder / "rank0").write_bytes(changed.tobytes())
    assert store.save(folder, job="job with space", step=8, raw="f64:100000").step == 8
    facts = store.diff("job with space@7", "job with space@8")
    assert facts["changed_bytes"] > 0
    assert store.stat()["set_count"] == 2
    assert store.verify(deep=True)["whole"]
    saved.restore(tmp_path / "back")
    assert (tmp_path / "back" / "rank0").read_bytes() == np.arange(100_000.0).tobytes()
    with pytest.raises(varve.AlreadyExists) as error:
        saved.restore(tmp_path / "back")
    assert "overwrite" in error.value.hint
    with pytest.raises(varve.AlreadyExists):
        store.save(folder, job="job with space", step=8)
    store.drop("job with space@7")
    store.prune(keep_last=1)
    assert [one.step for one in store] == [8]


def test_a_name_that_looks_like_an_option_is_a_name(path: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "--json").mkdir()
    (tmp_path / "--json" / "file").write_text("x")
    saved = varve.Store(path, create=True).save("--json", job="x", step=1)
    assert saved.name == "x@1"


def test_many_sets_are_listed(path: str) -> None:
    # More words than a pipe holds.
    with varve.Session(store=path, job="x" * 100) as session:
        session.protect("number", np.zeros(1))
        for step in range(200):
            session.checkpoint(step)
    assert len(varve.Store(path)) == 200


def test_the_environment_names_the_store(path: str, filled: varve.Store, monkeypatch: Any) -> None:
    monkeypatch.setenv("VARVE_STORE", path)
    assert len(varve.Store()) == 3
    monkeypatch.delenv("VARVE_STORE")
    with pytest.raises(varve.InvalidArgument, match="no store is named"):
        varve.Store()
    with pytest.raises(varve.NotFound):
        len(varve.Store(path + "-not"))


def test_damage_is_told(path: str, filled: varve.Store) -> None:
    for arena in pathlib.Path(path, "arenas").rglob("*"):
        if arena.is_file():
            content = bytearray(arena.read_bytes())
            for at in range(0, len(content), 64):
                content[at] ^= 0xFF
            arena.write_bytes(content)
    with pytest.raises(varve.Error) as error:
        np.asarray(filled["run"]["field"])
    assert isinstance(error.value, (varve.Corrupt, varve.NotFound))


def test_an_interrupted_save_leaves_nothing(path: str, tmp_path: pathlib.Path) -> None:
    varve.Store(path, create=True)
    folder = tmp_path / "dump1"
    folder.mkdir()
    (folder / "file").write_bytes(os.urandom(64 << 20))
    program = (
        "import sys, varve\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    said = lambda *facts: print(facts, flush=True)\n"
        "    varve.Store(sys.argv[1]).save(sys.argv[2], effort='best', progress=said)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(9)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, path, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 9
    time.sleep(0.1)
    assert len(varve.Store(path)) == 0


def test_xarray_reads_lazily(filled: varve.Store, path: str) -> None:
    xarray = pytest.importorskip("xarray")
    names = {"field": ("z", "y", "x")}
    dataset = xarray.open_dataset(filled["run@2"], engine="varve", dims=names, drop_variables=["state/name"])
    assert dataset["field"].dims == ("z", "y", "x")
    whole = np.arange(6 * 7 * 8, dtype=float).reshape(6, 7, 8) + 2
    np.testing.assert_array_equal(dataset["field"].isel(z=2, x=slice(None, None, -2)), whole[2, :, ::-2])
    assert float(dataset["field"].mean()) == whole.mean()
    assert float(dataset["state/time"]) == 1.0
    assert dataset.attrs["set"] == "run@2"
    again = xarray.open_dataset(path, engine="varve", set="run@3")
    assert again["field"].shape == (6, 7, 8)


def test_dimensions_of_xarray_have_names_of_their_own(path: str) -> None:
    xarray = pytest.importorskip("xarray")
    arrays = {"rho": np.zeros((3, 4)), "rho_0": np.array(1.0), "x": np.zeros((2, 5)), "x_1": np.zeros(7)}
    with varve.Session(store=path, job="run") as session:
        for name, array in arrays.items():
            session.protect(name, array)
        session.checkpoint(1, wait=True)
    dataset = xarray.open_dataset(varve.Store(path)["run@1"], engine="varve", dims={"x_1": ["x_0"]})
    assert {name: dataset[name].dims for name in arrays} == {
        "rho": ("rho_0_", "rho_1"), "rho_0": (), "x": ("x_0_", "x_1_"), "x_1": ("x_0",)
    }
    assert dataset["rho"].shape == (3, 4)
