"""A job of MPI ranks: `mpi_ranks.py STORE save|load`. It saves on some ranks and loads on others."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import varve

ROWS, COLUMNS = 24, 10
store, what = sys.argv[1:]
ranks = MPI.COMM_WORLD
first, last = ROWS * ranks.rank // ranks.size, ROWS * (ranks.rank + 1) // ranks.size
whole = np.arange(ROWS * COLUMNS, dtype=float).reshape(ROWS, COLUMNS)
mine = np.zeros((last - first + 2, COLUMNS))  # with a row of ghost cells on each side
state = {"time": 0.0, "table": np.zeros(5, np.int32)}
particles = {"x": np.zeros(0)}
# In Fortran's order, by columns: of four ranks each has one of the square, and one has none of what is narrow.
square, narrow = np.arange(16.0).reshape(4, 4), np.arange(30.0).reshape(10, 3)


def columns_of(grid: Any) -> tuple[int, int]:
    return grid.shape[1] * ranks.rank // ranks.size, grid.shape[1] * (ranks.rank + 1) // ranks.size


def columns(grid: Any) -> Any:
    begin, end = columns_of(grid)
    return np.zeros((grid.shape[0], end - begin), order="F")


my_square, my_narrow = columns(square), columns(narrow)

with varve.Session(ranks, store=store, job="mpi") as session:
    assert (session.rank, session.size) == (ranks.rank, ranks.size)
    session.protect("whole", mine, global_shape=(ROWS, COLUMNS), offset=(first, 0), ghosts=[1, 0])
    session.protect("square", my_square, global_shape=square.shape, offset=(0, columns_of(square)[0]))
    session.protect("narrow", my_narrow, global_shape=narrow.shape, offset=(0, columns_of(narrow)[0]), order="F")
    session.protect("state", state)
    session.protect("particles", particles, ragged=True)
    session.redistribute("state", "same")
    session.redistribute("particles", "evenly")
    if what == "save":
        assert session.restart() is None
        for step in (1, 2):
            mine[1:-1] = whole[first:last] * step
            my_square[:] = square[:, slice(*columns_of(square))] * step
            my_narrow[:] = narrow[:, slice(*columns_of(narrow))] * step
            state["time"] = float(step)
            state["table"][:] = step
            particles["x"] = np.arange(ranks.rank * 10, dtype=float) + 1000 * ranks.rank
            assert session.due(step) in (False, True)
            session.checkpoint(step)
        session.wait()
        if ranks.rank == 0:
            assert session.report()["rank_count"] == ranks.size
    else:
        assert session.restart() == 2
        np.testing.assert_array_equal(mine[1:-1], whole[first:last] * 2)
        assert (mine[0] == 0).all()
        np.testing.assert_array_equal(my_square, square[:, slice(*columns_of(square))] * 2)
        np.testing.assert_array_equal(my_narrow, narrow[:, slice(*columns_of(narrow))] * 2)
        assert state["time"] == 2.0
        assert (state["table"] == 2).all()
        everything = np.concatenate(ranks.allgather(particles["x"]))
        saved = np.concatenate([np.arange(rank * 10.0) + 1000 * rank for rank in range(4)])
        np.testing.assert_array_equal(everything, saved)
        if ranks.size != 4:
            assert abs(len(particles["x"]) - 60 / ranks.size) < 1
saved = varve.Store(store)["mpi@2"]
assert (saved["whole"][3:7, ::2] == 2 * whole[3:7, ::2]).all()
for name, grid in (("square", square), ("narrow", narrow)):
    np.testing.assert_array_equal(saved[name][...], 2 * grid.T)
