"""Checkpoints of parallel programs: what is new in each is stored, compressed, and comes back bit by bit.

A running program has a ``Session``::

    with varve.Session(MPI.COMM_WORLD, job="heat") as session:
        session.protect("temperature", temperature)
        step = session.restart() or 0
        while step < steps:
            step = compute(temperature, step)
            if session.due(step):
                session.checkpoint(step)

Any program reads what is in a ``Store``::

    store = varve.Store("checkpoints")
    store["heat"]["temperature"][10:20, ::2]

``varve.torch`` saves state dicts of PyTorch, ``varve.xarray`` gives datasets. What fails raises ``varve.Error``.
"""

from varve._errors import (
    AlreadyExists,
    Busy,
    Cancelled,
    Corrupt,
    Error,
    Internal,
    InvalidArgument,
    IoError,
    NoSpace,
    NotFound,
    PermissionDenied,
    ResourceLimit,
    Unsupported,
    VarveWarning,
)
from varve._native import version as __version__
from varve._session import Level, Progress, Ranks, RestartPoint, SavedPart, SavedVariable, Session
from varve._store import Checkpoint, Part, Store, Variable

__all__ = [
    "AlreadyExists",
    "Busy",
    "Cancelled",
    "Checkpoint",
    "Corrupt",
    "Error",
    "Internal",
    "InvalidArgument",
    "IoError",
    "Level",
    "NoSpace",
    "NotFound",
    "Part",
    "PermissionDenied",
    "Progress",
    "Ranks",
    "ResourceLimit",
    "RestartPoint",
    "SavedPart",
    "SavedVariable",
    "Session",
    "Store",
    "Unsupported",
    "Variable",
    "VarveWarning",
    "__version__",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__  # where people import it from
