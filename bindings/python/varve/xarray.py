"""Sets as datasets of xarray::

    xarray.open_dataset(varve.Store("checkpoints")["run@7"], engine="varve", dims={"density": ("z", "y", "x")})
    xarray.open_dataset("checkpoints", engine="varve", set="run@7")

What is computed with is read, and no more. A dimension has the name "VARIABLE_N" unless ``dims`` names it, with "_"
behind it if something else has that name. What has an array of its own on each rank is left out, and named in the
attribute ``left_out``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from varve import _errors
from varve._store import Checkpoint, Store, Variable


class _LazyArray(BackendArray):  # type: ignore[misc]
    def __init__(self, variable: Variable) -> None:
        self.shape, self.dtype, self._variable = variable.shape, variable.dtype, variable

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, lambda basic: self._variable[basic]
        )


def _unlike(taken: set[str], name: str) -> str:
    """The name, or a longer one that nothing else has; it is taken then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class VarveBackend(BackendEntrypoint):  # type: ignore[misc]
    """What ``engine="varve"`` is."""

    description = "Checkpoint sets in a store of Varve"

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        set: str | None = None,  # noqa: A002 - the word of the command line
        dims: Mapping[str, Sequence[str]] | None = None,
    ) -> xarray.Dataset:
        """A set as a dataset: a ``varve.Checkpoint``, or the path of a store and the name of a ``set``."""
        if isinstance(filename_or_obj, Checkpoint):
            checkpoint = filename_or_obj
        elif set is not None:
            checkpoint = Store(os.fspath(filename_or_obj))[set]
        else:
            raise _errors.InvalidArgument("no set is named", 'say set="JOB@STEP"')
        dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
        taken = {*checkpoint, *(dimension for given in (dims or {}).values() for dimension in given)}
        arrays, left_out = {}, []
        for name, variable in checkpoint.items():
            if name in dropped:
                continue
            if not variable.is_one_array:
                left_out.append(name)
                continue
            names = (dims or {}).get(name) or [_unlike(taken, f"{name}_{at}") for at in range(variable.ndim)]
            arrays[name] = xarray.Variable(tuple(names), indexing.LazilyIndexedArray(_LazyArray(variable)))
        return xarray.Dataset(arrays, attrs={"set": checkpoint.name, "left_out": left_out})

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        return isinstance(filename_or_obj, Checkpoint)
