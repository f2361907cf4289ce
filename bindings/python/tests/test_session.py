"""Checkpoints of a process alone."""

from __future__ import annotations

import gc
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import varve

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
DTYPES = [*NUMBERS, "?", "c8", "c16", "f2", ">f8", "M8[s]", "S5", "i4,f8"]


def numbers(dtype: str, shape: tuple[int, ...]) -> Any:
    raw = np.random.default_rng(len(shape)).integers(0, 2, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape).copy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0,), (4, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_comes_back_whatever_it_is(path: str, dtype: str, shape: tuple[int, ...], order: Any) -> None:
    before = np.array(numbers(dtype, shape), order=order)
    with varve.Session(store=path, job="x") as session:
        session.protect("array", before)
        session.checkpoint(1)
    after = np.zeros(shape, dtype, order)
    with varve.Session(store=path, job="x") as session:
        session.protect("array", after)
        assert session.restart() == 1
    assert after.tobytes() == before.tobytes()


def test_the_first_run_finds_nothing(path: str) -> None:
    array = np.ones(3)
    with varve.Session(store=path, job="x") as session:
        session.protect("array", array)
        assert session.restart() is None
        with pytest.raises(varve.InvalidArgument):
            session.reject()
    assert (array == 1).all()


def fresh_state() -> dict[str, Any]:
    grid = {"u": np.zeros(4), "v": np.zeros((2, 2), order="F")}
    scalars = {"time": 0.0, "steps": 0, "on": False, "z": 0j, "name": "", "raw": b"", "one": np.float32(0)}
    return {**scalars, "grid": grid}


def test_a_dict_comes_back_with_numbers_text_and_new_arrays(path: str) -> None:
    state = fresh_state()
    with varve.Session(store=path, job="x") as session:
        session.protect("state", state)
        for step in (1, 2):
            state.update(time=step / 4, steps=step, on=True, z=1j * step, name=f"é {step}", raw=bytes([step, 0]))
            state["one"] = np.float32(step)
            state["grid"]["u"] = state["grid"]["u"] + 1  # another array
            state["grid"]["v"][1, 0] = step
            session.checkpoint(step)
    again = fresh_state()
    with varve.Session(store=path, job="x") as session:
        session.protect("state", again)
        assert session.restart() == 2
    grid, grid_before = again.pop("grid"), state.pop("grid")
    assert again == state
    assert [type(value) for value in again.values()] == [type(value) for value in state.values()]
    assert (grid["u"] == grid_before["u"]).all()
    assert (grid["v"] == grid_before["v"]).all()


def test_entries_of_a_dict_come_and_go(path: str) -> None:
    state: dict[str, Any] = {"a": np.ones(2), "b": 1}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", state)
        session.checkpoint(1)
        del state["b"]
        state["c"] = np.full(3, 3.0)
        state["a"] = 7
        session.checkpoint(2, wait=True)
    saved = varve.Store(path)["x@2"]
    assert sorted(saved) == ["state/a", "state/c"]
    assert np.asarray(saved["state/a"]) == 7
    assert (np.asarray(saved["state/c"]) == 3).all()


@pytest.mark.parametrize("other", ["array", "boxes", "callbacks"])
@pytest.mark.parametrize("dict_is_first", [True, False])
def test_two_things_do_not_get_one_name(path: str, other: str, dict_is_first: bool) -> None:
    state = {"x": np.ones(1)}
    with varve.Session(store=path, job="x") as session:
        protect = {
            "dict": lambda: session.protect("s", state),
            "array": lambda: session.protect("s/x", np.zeros(1)),
            "boxes": lambda: session.protect_boxes("s/x", [(np.zeros(1), (0,))], global_shape=(4,)),
            "callbacks": lambda: session.protect_callbacks("s/x", lambda: b"", lambda saved: None),
        }
        first, second = ("dict", other) if dict_is_first else (other, "dict")
        protect[first]()
        with pytest.raises(varve.InvalidArgument, match="this name is in use already, .*: s/x") as error:
            protect[second]()
        assert "another name" in error.value.hint
        session.unprotect("s" if dict_is_first else "s/x")
        protect[second]()


@pytest.mark.parametrize("value", [np.zeros(2), 1.5, "text"])
def test_two_entries_of_a_dict_do_not_get_one_name(path: str, value: Any) -> None:
    state: dict[str, Any] = {"a/b": value, "a": {}}
    with varve.Session(store=path, job="x") as session:
        session.protect("s", state)
        state["a"]["b"] = value
        with pytest.raises(varve.InvalidArgument, match="two entries of a dict have one name: s/a/b"):
            session.checkpoint(1)
        with pytest.raises(varve.InvalidArgument, match="two entries"):
            session.protect("s", dict(state))
        del state["a/b"]
        session.checkpoint(2)
        session.protect("s/a/c", np.zeros(1))
        state["a"]["c"] = value
        with pytest.raises(varve.InvalidArgument, match="in use already, by another variable: s/a/c"):
            session.checkpoint(3)
        with pytest.raises(varve.InvalidArgument, match="in use already, in the dict s: s/a/b"):
            session.protect("s/a", {"b": 1})


def test_an_entry_of_a_dict_is_unprotected_with_all_of_it(path: str) -> None:
    with varve.Session(store=path, job="x") as session:
        session.protect("s", {"n": 1})
        with pytest.raises(varve.InvalidArgument, match="it is protected in the dict s: s/n"):
            session.unprotect("s/n")
        session.checkpoint(1, wait=True)
        session.unprotect("s")
        session.protect("s/n", np.zeros(1))
    assert list(varve.Store(path)["x@1"]) == ["s/n"]


def test_a_name_may_be_protected_again(path: str) -> None:
    with varve.Session(store=path, job="x") as session:
        for length in (2, 3):
            session.protect("array", np.full(length, 1.0))
            session.protect_boxes("boxes", [(np.full(length, 2.0), (0,))], global_shape=(3,))
            session.protect_callbacks("callbacks", lambda: b"c", lambda saved: None)
            session.protect("dict", {"x": np.full(length, 3.0)})
        session.checkpoint(1, wait=True)
    checkpoint = varve.Store(path)["x@1"]
    assert [checkpoint[name].shape for name in checkpoint] == [(3,), (3,), (1,), (3,)]


def test_a_dict_takes_the_place_of_another(path: str) -> None:
    with varve.Session(store=path, job="x") as session:
        session.protect("s", {"x": np.ones(2), "y": np.ones(2), "z": 1})
        session.protect("s", {"x": np.full(2, 2.0), "z": 0.5})
        session.checkpoint(1, wait=True)
        # What cannot be protected takes nobody's place.
        with pytest.raises(varve.InvalidArgument, match="no way to save a list"):
            session.protect("s", {"x": np.zeros(2), "w": 1, "list": []})
        session.checkpoint(2)
    store = varve.Store(path)
    for step in (1, 2):
        checkpoint = store[f"x@{step}"]
        assert list(checkpoint) == ["s/x", "s/z"]
        assert (np.asarray(checkpoint["s/x"]) == 2).all()
        assert np.asarray(checkpoint["s/z"]) == 0.5


def test_ragged_arrays_have_another_length_in_each_checkpoint(path: str) -> None:
    particles = {"x": np.zeros(0), "id": np.zeros(0, np.int32), "velocity": np.zeros((0, 3)), "z": np.zeros(0, complex)}
    with varve.Session(store=path, job="x") as session:
        session.protect("particles", particles, ragged=True)
        for step in (3, 7, 5):
            particles.update(x=np.arange(step) / 2, id=np.arange(step, dtype=np.int32))
            particles.update(velocity=np.full((step, 3), float(step)), z=np.full(step, 1j))
            session.checkpoint(step if step != 5 else 8)
    again = {"x": np.zeros(2), "id": np.zeros(0, np.int32), "velocity": np.zeros((1, 3)), "z": np.zeros(0, complex)}
    with varve.Session(store=path, job="x") as session:
        session.protect("particles", again, ragged=True)
        assert session.restart() == 8
    for name, array in particles.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 0)), np.zeros((0, 0)), np.zeros((0, 2, 0), np.int8), np.zeros(3, "V0")]
)
def test_ragged_arrays_whose_elements_have_no_bytes_are_refused(path: str, array: Any) -> None:
    particles = {"x": array}
    with varve.Session(store=path, job="x") as session:
        with pytest.raises(varve.InvalidArgument, match="has no bytes: particles/x") as error:
            session.protect("particles", particles, ragged=True)
        assert "first dimension" in error.value.hint
        particles["x"] = np.zeros((0, 3))
        session.protect("particles", particles, ragged=True)
        session.checkpoint(1)
        particles["x"] = array
        with pytest.raises(varve.InvalidArgument, match="has no bytes"):
            session.checkpoint(2)


def test_an_exception_while_a_ragged_array_is_asked_for_saves_nothing_in_its_place(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    particles = {"x": np.arange(1000.0)}
    with varve.Session(store=path, job="x") as session:
        session.protect("particles", particles, ragged=True)
        session.checkpoint(1)
        with monkeypatch.context() as patched:

            def interrupted(entry: Any) -> Any:
                raise KeyboardInterrupt

            patched.setattr("varve._dicts._RaggedEntry._where", interrupted)
            # What was bound before stays; a new name is bound anew.
            particles["y"] = np.arange(5.0)
            with pytest.raises(KeyboardInterrupt):
                session.checkpoint(2)
    again = {"x": np.zeros(0)}
    with varve.Session(store=path, job="x") as session:
        session.protect("particles", again, ragged=True)
        assert session.restart() == 1
    np.testing.assert_array_equal(again["x"], np.arange(1000.0))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (0, np.uint64(2**63 + 5)),
        (np.int32(0), np.int64(2**40)),
        (np.float32(0), 0.1),
        (0.0, 2**60 + 1),
    ],
)
def test_a_number_that_does_not_fit_is_refused_not_rounded(path: str, first: Any, then: Any) -> None:
    state = {"number": first, "other": float("nan")}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", state)
        session.checkpoint(1)
        state["number"] = then
        with pytest.raises((varve.InvalidArgument, OverflowError)):
            session.checkpoint(2)


def test_objects_are_pickled_only_where_asked_for(path: str) -> None:
    random = np.random.default_rng(1)
    state = {"random": random, "list": [1, {"two": None}]}
    with varve.Session(store=path, job="x") as session:
        with pytest.raises(varve.InvalidArgument, match="state/random") as error:
            session.protect("state", state)
        assert "pickle=True" in error.value.hint
        session.protect("state", state, pickle=True)
        session.checkpoint(1)
        wanted = random.random(3)
    again: dict[str, Any] = {"random": np.random.default_rng(2), "list": []}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", again, pickle=True)
        session.restart()
    assert (again["random"].random(3) == wanted).all()
    assert again["list"] == [1, {"two": None}]


@pytest.mark.parametrize("saved", ["text", "", ".", b"N.", b"\x80", None, [1, None], {"set"}])
@pytest.mark.parametrize("begin", [None, "", b"", ()])
def test_an_entry_may_begin_as_another_object_than_was_saved(path: str, saved: Any, begin: Any) -> None:
    state = {"it": saved}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", state, pickle=True)
        session.checkpoint(1)
    again = {"it": begin}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", again, pickle=True)
        assert session.restart() == 1
        assert again == state
        assert type(again["it"]) is type(saved)
        again["it"] = begin
        session.checkpoint(2)
        again["it"] = "other"
        assert session.restart() == 2
    assert again == {"it": begin}


@pytest.mark.parametrize(("saved", "begin"), [(1.5, None), (None, 0.0), (np.zeros(3), None), (1.5, 0)])
def test_an_entry_of_another_type_than_was_saved_is_refused_with_what_to_do(path: str, saved: Any, begin: Any) -> None:
    with varve.Session(store=path, job="x") as session:
        session.protect("state", {"it": saved}, pickle=True)
        session.checkpoint(1)
    again = {"it": begin}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", again, pickle=True)
        with pytest.raises(varve.InvalidArgument, match="in the checkpoint, but protected as") as error:
            session.restart()
        assert "let state/it begin with a value of the type that was saved" in error.value.hint
        assert error.value.hint in str(error.value)
    assert again == {"it": begin}


def test_a_pickle_of_the_version_before_is_loaded_where_asked_for(path: str) -> None:
    with varve.Session(store=path, job="x") as session:
        session.protect_callbacks("state/it", lambda: pickle.dumps([1, 2], protocol=5), lambda saved: None)
        session.checkpoint(1)
    state: dict[str, Any] = {"it": ""}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", state)
        with pytest.raises(varve.InvalidArgument, match="an object was pickled.*: state/it") as error:
            session.restart()
        assert "pickle=True" in error.value.hint
        session.protect("state", state, pickle=True)
        assert session.restart() == 1
    assert state == {"it": [1, 2]}


def test_callbacks_give_and_take_bytes(path: str) -> None:
    taken: list[bytes] = []
    with varve.Session(store=path, job="x") as session:
        session.protect_callbacks("object", lambda: b"one\0two", taken.append)
        session.checkpoint(1)
        session.wait()
        assert session.restart() == 1
    assert taken == [b"one\0two"]


def test_what_a_callback_raises_is_raised_by_the_call(path: str) -> None:
    def fails() -> bytes:
        raise ZeroDivisionError("of the program")

    with varve.Session(store=path, job="x") as session:
        session.protect_callbacks("object", fails, lambda saved: None)
        with pytest.raises(ZeroDivisionError, match="of the program"):
            session.checkpoint(1)
        session.protect_callbacks("object", lambda: session.report_text().encode(), lambda saved: None)
        with pytest.raises(varve.InvalidArgument, match="a callback uses the session"):
            session.checkpoint(2)
        session.protect_callbacks("object", lambda: b"well", lambda saved: None)
        session.checkpoint(3)
    assert [one.name for one in varve.Store(path)] == ["x@3"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (3, "cannot be changed where it lies"),
        ([1.0, 2.0], "cannot be changed where it lies"),
        (np.zeros((4, 4))[:, ::2], "in one piece"),
        (np.frombuffer(b"12345678"), "cannot be written to"),
        (np.array([None]), "Python objects"),
        ({"list": [1]}, "no way to save a list"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "mask of a masked array would be lost: data"),
        ({"sea": np.ma.masked_array([1.0, 2.0], [True, False])}, "mask of a masked array would be lost: data/sea"),
        ({1: 2.0}, "a key is no text"),
    ],
)
def test_what_cannot_be_protected_is_refused(path: str, data: Any, why: str) -> None:
    with varve.Session(store=path, job="x") as session, pytest.raises(varve.InvalidArgument, match=why):
        session.protect("data", data)


def test_a_mask_is_refused_wherever_an_array_may_come_in(path: str) -> None:
    sea = np.ma.masked_array(np.zeros((2, 3)), False)
    state: dict[str, Any] = {"sea": sea.data}
    with varve.Session(store=path, job="x") as session:
        with pytest.raises(varve.InvalidArgument, match="mask") as error:
            session.protect_boxes("boxes", [(sea, (0, 0))], global_shape=(2, 3))
        assert "getmaskarray" in error.value.hint
        with pytest.raises(varve.InvalidArgument, match="mask"):
            session.protect("ragged", {"sea": sea}, ragged=True)
        session.protect("state", state)
        state["sea"] = sea
        with pytest.raises(varve.InvalidArgument, match="mask"):
            session.checkpoint(1)
        # What the hint says is another thing.
        session.protect("state", {"sea": sea.data, "mask": np.ma.getmaskarray(sea)})
        session.checkpoint(2)


def test_a_number_may_not_become_another_kind(path: str) -> None:
    state: dict[str, Any] = {"time": 0}
    with varve.Session(store=path, job="x") as session:
        session.protect("state", state)
        state["time"] = 0.5
        with pytest.raises(varve.InvalidArgument, match="was protected as int64"):
            session.checkpoint(1)


def test_a_dict_that_holds_itself_is_refused(path: str) -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with varve.Session(store=path, job="x") as session, pytest.raises(varve.InvalidArgument, match="holds itself"):
        session.protect("state", state)


def test_ghost_cells_are_left_out(path: str) -> None:
    field = np.arange(30.0).reshape(5, 6)
    with varve.Session(store=path, job="x") as session:
        session.protect("field", field, ghosts=[1, (0, 2)])
        session.checkpoint(1, wait=True)
        again = np.zeros((5, 6))
        session.protect("field", again, ghosts=[1, (0, 2)])
        session.restart()
    assert (varve.Store(path)["x@1"]["field"][...] == field[1:-1, :-2]).all()
    assert (again[1:-1, :-2] == field[1:-1, :-2]).all()
    assert (again[0] == 0).all()


def test_boxes_are_parts_of_a_whole(path: str) -> None:
    whole = np.arange(24, dtype=np.complex64).reshape(4, 6)
    boxes = [(whole[:2, :3].copy(), (0, 0)), (whole[2:].copy(), (2, 0)), (whole[:2, 3:].copy(), (0, 3))]
    with varve.Session(store=path, job="x") as session:
        session.protect_boxes("field", boxes, global_shape=(4, 6))
        session.checkpoint(1)
    again = np.zeros((4, 6), np.complex64)
    with varve.Session(store=path, job="x") as session:
        session.protect("field", again, global_shape=(4, 6), offset=(0, 0))
        assert session.restart() == 1
    np.testing.assert_array_equal(again, whole)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.float16])
def test_boxes_may_have_the_slowest_dimension_last(path: str, dtype: Any) -> None:
    whole: Any = np.array(np.arange(24).reshape(4, 6), dtype, order="F")
    # One lies in both orders.
    places = [(slice(0, 2), slice(0, 3)), (slice(2, 4), slice(0, 6)), (slice(0, 1), slice(3, 6)),
              (slice(1, 2), slice(3, 6))]
    boxes = [(whole[place].copy("F"), (place[0].start, place[1].start)) for place in places]
    with varve.Session(store=path, job="x") as session:
        with pytest.raises(varve.InvalidArgument, match='not lie in the order "C"'):
            session.protect_boxes("field", boxes, global_shape=(4, 6))
        with pytest.raises(varve.InvalidArgument, match="no such order"):
            session.protect_boxes("field", [], global_shape=(4, 6), dtype=dtype, order="K")  # type: ignore[arg-type]
        session.protect_boxes("field", boxes, global_shape=(4, 6), order="F")
        session.checkpoint(1)
    again = np.zeros((4, 6), dtype, "F")
    with varve.Session(store=path, job="x") as session:
        session.protect("field", again, global_shape=(4, 6), offset=(0, 0))
        assert session.restart() == 1
    np.testing.assert_array_equal(again, whole)


def test_a_run_chooses_where_it_goes_on(path: str, filled: varve.Store) -> None:
    field, state = np.zeros((6, 7, 8)), {"time": 0.0, "name": ""}
    with varve.Session(store=path, job="run") as session:
        session.protect("field", field)
        session.protect("state", state)
        assert [point.step for point in session.restart_points()] == [3, 2, 1]
        assert session.restart(at_most=2) == 2
        assert state == {"time": 1.0, "name": "step 2"}
        assert session.reject() == 1
        assert session.restart(exactly=3) == 3
        with pytest.raises(varve.NotFound):
            session.restart(exactly=7)
        saved = {one.name: one for one in session.saved_variables(2)}
        session.drop(3)
        with pytest.raises(varve.NotFound):
            session.drop(3)
        assert [point.step for point in session.restart_points()] == [2, 1]
    assert saved["field"].dtype == np.float64
    assert saved["field"].parts == (varve.SavedPart(0, (6, 7, 8), None),)


def test_waiting_lets_other_threads_run(path: str) -> None:
    # A level that takes a second for a set, and a thread that counts meanwhile.
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.001):
            counted[0] += 1

    array = np.random.default_rng(0).random(250_000)
    with varve.Session(store=path, job="x", write_bytes_per_second=2e6, codec="store") as session:
        session.protect("array", array)
        thread = threading.Thread(target=count)
        thread.start()
        begin = time.monotonic()
        session.checkpoint(1, wait=True)
        took, seen = time.monotonic() - begin, counted[0]
        stop.set()
        thread.join()
    assert took > 0.3
    assert seen > took * 20


def test_a_session_that_nobody_closes_waits_for_what_is_on_its_way(path: str) -> None:
    program = (
        "import numpy, varve, sys\n"
        "session = varve.Session(store=sys.argv[1], job='x')\n"
        "session.protect('a', numpy.arange(1000000.0))\n"
        "session.protect('s', {'text': 'x'})\n"
        "session.checkpoint(1)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert [one.name for one in varve.Store(path)] == ["x@1"]


def test_a_job_is_called_as_the_script(path: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "simulate.py"
    script.write_text(
        "import numpy, sys, varve\n"
        "with varve.Session(store=sys.argv[1]) as session:\n"
        "    session.protect('a', numpy.zeros(1))\n"
        "    session.checkpoint(1)\n"
    )
    subprocess.run([sys.executable, str(script), path], check=True)
    assert [one.name for one in varve.Store(path)] == ["simulate@1"]


def test_a_session_keeps_what_it_protects(path: str) -> None:
    with varve.Session(store=path, job="x") as session:
        session.protect("array", np.arange(100000.0))
        gc.collect()
        noise = [np.full(100000, -1.0) for _ in range(3)]
        session.checkpoint(1)
        assert len(noise) == 3
    assert (varve.Store(path)["x@1"]["array"][...] == np.arange(100000.0)).all()


def test_everything_public_is_described() -> None:
    for kind in (getattr(varve, name) for name in varve.__all__):
        if not isinstance(kind, type):
            continue
        assert kind.__doc__
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{kind.__name__}.{name}"


def test_errors_say_what_can_be_done(path: str, filled: varve.Store) -> None:
    with pytest.raises(varve.NotFound) as error:
        filled["run@9"]
    assert "run@9" in str(error.value)
    assert error.value.hint
    assert error.value.remedy == "list_sets"
    assert error.value.code == "not_found"
    with pytest.raises(varve.InvalidArgument):
        varve.Session(store=path, job="run", effort="enormous")
    wrong: Any
    for wrong in ({"when_busy": "sometimes"}, {"when_busy": 7}, {"threads": -1}, {"threads": "many"},
                  {"every_seconds": "often"}):
        with pytest.raises(varve.InvalidArgument, match=next(iter(wrong))) as error:
            varve.Session(store=path, job="run", **wrong)
        assert error.value.hint
    session = varve.Session(store=path, job="run")
    for call in (session.checkpoint, session.due, session.drop, session.saved_variables,
                 lambda step: session.restart(at_most=step), lambda step: session.restart(exactly=step)):
        for step in (-1, 1 << 64):
            with pytest.raises(varve.InvalidArgument, match=f"a step cannot be {step}") as error:
                call(step)
            assert error.value.hint
    assert session.due(np.int64(7)) in (True, False)
    session.close()
    session.close()
    with pytest.raises(varve.InvalidArgument, match="the session is closed"):
        session.checkpoint(5)


def test_what_is_in_memory_alone_is_not_lost_by_who_protects_less(path: str) -> None:
    program = (
        "import numpy, os, sys, varve\n"
        "session = varve.Session(store=sys.argv[1], job='x')\n"
        "session.protect('a', numpy.ones(3))\n"
        "session.protect('b', numpy.full(4, 2.0))\n"
        "session.checkpoint(1, wait=True)\n"
        "session.protect('a', numpy.full(3, 5.0))\n"
        "session.checkpoint(2)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=False)
    a, b = np.zeros(3), np.zeros(4)
    with varve.Session(store=path, job="x", variables_may_change=True) as session:
        session.protect("a", a)
        step = session.restart()
        session.protect("b", b)
        assert session.restart(exactly=step) == step
        assert (b == 2).all()
    assert all(sorted(one) == ["a", "b"] for one in varve.Store(path))


def test_progress_and_reports(path: str) -> None:
    with varve.Session(store=path, job="x") as session:
        session.protect("array", np.zeros(10))
        session.checkpoint(4)
        session.wait()
        progress = session.progress()
        assert (progress.newest_snapshot, progress.newest_persistent, progress.last_error) == (4, 4, None)
        assert session.levels()[-1].newest == 4
        assert session.report()["checkpoint_count"] == 1
        assert "store" in session.effective_options()
        assert session.warnings() == []
        assert not session.should_stop()


class Threads:
    """Ranks of one process, for sessions on threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, given: list[bytes]) -> None:
        self.rank, self.size, self._barrier, self._given = rank, len(given), barrier, given

    def all_gather(self, mine: bytes) -> list[bytes]:
        self._given[self.rank] = mine
        self._barrier.wait(60)
        all_given = list(self._given)
        self._barrier.wait(60)
        return all_given


def on_ranks(path: str, count: int, work: Any) -> list[Any]:
    """What work(session) gives on each of so many ranks."""
    barrier, given = threading.Barrier(count), [b""] * count
    results: list[Any] = [None] * count

    def run(rank: int) -> None:
        try:
            with varve.Session(Threads(rank, barrier, given), store=path, job="x", group="node") as session:
                results[rank] = work(session)
        except BaseException as error:
            results[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in results:
        if isinstance(error, BaseException) and not isinstance(error, threading.BrokenBarrierError):
            raise error
    return results


def test_ranks_without_mpi_share_a_set_and_another_number_goes_on(path: str) -> None:
    whole = np.arange(60.0).reshape(12, 5)

    def save(session: varve.Session) -> int:
        first, last = 12 * session.rank // session.size, 12 * (session.rank + 1) // session.size
        session.protect("whole", whole[first:last].copy(), global_shape=(12, 5), offset=(first, 0))
        session.checkpoint(1)
        return session.rank

    def load(session: varve.Session) -> Any:
        first, last = 12 * session.rank // session.size, 12 * (session.rank + 1) // session.size
        mine = np.zeros((last - first, 5))
        session.protect("whole", mine, global_shape=(12, 5), offset=(first, 0))
        assert session.restart() == 1
        return mine

    assert on_ranks(path, 3, save) == [0, 1, 2]
    for count in (1, 2, 3, 4):
        np.testing.assert_array_equal(np.concatenate(on_ranks(path, count, load)), whole)


@pytest.mark.parametrize("late", ["added", "within", "of another type", "again"])
def test_a_dict_is_redistributed_as_was_said_whatever_comes_into_it(path: str, late: str) -> None:
    def save(session: varve.Session) -> None:
        # Alike on both ranks: that would else come back everywhere.
        session.protect("s", {"p": {"x": np.ones(4)}, "y": np.ones(4)}, ragged=True)
        session.checkpoint(1)

    def load(session: varve.Session) -> tuple[int, int]:
        state: dict[str, Any] = {"p": {"x": np.zeros(0)}, "y": np.zeros(0)}
        begin = state.pop("y") if late == "added" else None
        session.protect("s", state, ragged=True)
        session.redistribute("s", "evenly")
        if late == "added":
            state["y"] = begin
        elif late == "within":
            state["p"] = {"x": np.zeros(0)}
        elif late == "of another type":
            for dtype in (np.float32, np.float64):
                state["y"] = np.zeros(0, dtype)
                session.protect("s", state, ragged=True)
        else:
            state = {"p": {"x": np.zeros(0)}, "y": np.zeros(0)}
            session.protect("s", state, ragged=True)
        assert session.restart() == 1
        return len(state["p"]["x"]), len(state["y"])

    on_ranks(path, 2, save)
    assert on_ranks(path, 3, load) == [(3, 3), (3, 3), (2, 2)]


def test_of_a_ragged_dict_arrays_alone_are_divided(path: str) -> None:
    def save(session: varve.Session) -> None:
        session.protect("s", {"x": np.ones(4), "count": 7}, ragged=True)
        session.checkpoint(1)

    def load(session: varve.Session) -> tuple[int, int]:
        state: dict[str, Any] = {"x": np.zeros(0), "count": 0}
        session.protect("s", state, ragged=True)
        session.redistribute("s", "evenly")
        assert session.restart() == 1
        return len(state["x"]), state["count"]

    on_ranks(path, 2, save)
    assert on_ranks(path, 3, load) == [(3, 7), (3, 7), (2, 7)]


def test_what_is_said_of_an_entry_stays_with_it(path: str) -> None:
    def save(session: varve.Session) -> None:
        session.protect("s", {"p": {"own": session.rank, "all": 2}})
        session.checkpoint(1)

    def load(session: varve.Session) -> Any:
        state = {"p": {"own": 70 + session.rank, "all": 0}}
        session.protect("s", state)
        with pytest.raises(varve.InvalidArgument, match="fixed size cannot be divided: s") as error:
            session.redistribute("s", "evenly")
        assert "ragged=True" in error.value.hint
        session.redistribute("s", "same")
        session.redistribute("s/p/own", "ignore")
        state["p"] = dict(state["p"])
        assert session.restart() == 1
        return state["p"]

    on_ranks(path, 2, save)
    assert on_ranks(path, 3, load) == [{"own": 70 + rank, "all": 2} for rank in range(3)]
