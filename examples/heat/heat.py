#!/usr/bin/env python3
# The same program as heat.cpp, in Python: the heat equation on a plate, cut into rows among the MPI ranks. The lines
# marked [varve] make it survive being killed: run it again, and it goes on from its last checkpoint.
#
#     mpirun -n 4 python3 heat.py [steps [rows [columns]]]

import sys

import numpy as np
from mpi4py import MPI

import varve  # [varve]

steps, rows, columns = (int(text) for text in (sys.argv[1:] + ["1000", "512", "512"][len(sys.argv) - 1 :])[:3])
ranks = MPI.COMM_WORLD
first, last = rows * ranks.rank // ranks.size, rows * (ranks.rank + 1) // ranks.size
# This rank's rows of the plate, with one more on each side that belong to the neighbours.
plate = np.zeros((last - first + 2, columns))
if first <= rows // 2 < last:
    plate[rows // 2 - first + 1, columns // 2] = 1e6  # a hot spot in the middle
above = ranks.rank - 1 if ranks.rank > 0 else MPI.PROC_NULL
below = ranks.rank + 1 if ranks.rank + 1 < ranks.size else MPI.PROC_NULL

with varve.Session(ranks) as session:  # [varve]
    session.protect("temperature", plate)  # [varve]
    step = session.restart() or 0  # [varve]
    while step < steps:
        ranks.Sendrecv(plate[1], above, 0, plate[-1], below, 0)
        ranks.Sendrecv(plate[-2], below, 1, plate[0], above, 1)
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] += 0.2 * (around - 4 * plate[1:-1, 1:-1])
        step += 1
        if session.due(step):  # [varve]
            session.checkpoint(step)  # [varve]
        if session.should_stop():  # [varve]
            break
total = ranks.reduce(plate[1:-1].sum())
if ranks.rank == 0:
    print(f"after {step} steps the plate holds {total:.17g}")
