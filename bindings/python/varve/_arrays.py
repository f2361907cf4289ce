"""Arrays of NumPy as the C interface knows them: a type, an address and the cells of each dimension."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from varve import _errors

Array = np.ndarray[Any, np.dtype[Any]]
#: Of dimensions: the slowest first, as in C, or the fastest first, as in Fortran.
Order = Literal["C", "F"]

#: enum varve_type of each type of NumPy that has one.
_TYPES = {
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uint8": 5,
    "uint16": 6,
    "uint32": 7,
    "uint64": 8,
    "float32": 9,
    "float64": 10,
    "bool": 5,
}
_BYTE = 0


def element(dtype: np.dtype[Any]) -> tuple[int, int]:
    """enum varve_type, and how many of these one element of ``dtype`` is: two of a complex number, its bytes of what
    has no type there."""
    if dtype.hasobject:
        raise _errors.InvalidArgument(
            f"an array of Python objects cannot be protected as it is: {dtype}",
            "protect_callbacks() takes their bytes; in a dict, pickle=True",
        )
    if dtype.isnative and dtype.name in _TYPES:
        return _TYPES[dtype.name], 1
    if dtype.isnative and dtype.kind == "c" and dtype.itemsize in (8, 16):
        return _TYPES["float32" if dtype.itemsize == 8 else "float64"], 2
    if dtype.kind in "mM" and dtype.isnative:
        return _TYPES["int64"], 1
    return _BYTE, dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """What varve_protect_array() is told of an array."""

    type: int
    address: int
    count: int
    cells: list[int]
    ghosts_low: list[int]
    ghosts_high: list[int]
    global_cells: list[int]
    global_offset: list[int]
    fastest_first: bool


def address_of(array: Array) -> int:
    """Where its first element lies."""
    return int(array.__array_interface__["data"][0])


def unmasked(name: str, array: Array) -> None:
    """Raises if some of its elements may be masked: which, other memory says than that of the elements."""
    if isinstance(array, np.ma.MaskedArray):
        raise _errors.InvalidArgument(
            f"the mask of a masked array would be lost: {name}",
            "save its .data, and what numpy.ma.getmaskarray() gives of it as an array of its own",
        )


def writable(name: str, array: Array) -> None:
    """Raises unless a restart can put bytes into it as they lie in memory, which are all there is to it."""
    unmasked(name, array)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise _errors.InvalidArgument(
            f"an array does not lie in one piece: {name}", "protect the array of which it is a slice, with ghosts="
        )
    if not array.flags.writeable:
        raise _errors.InvalidArgument(f"an array cannot be written to: {name}")


def layout_of(
    name: str,
    array: Array,
    global_shape: Sequence[int] | None = None,
    offset: Sequence[int] | None = None,
    ghosts: int | Sequence[int | tuple[int, int]] | None = None,
    order: Order | None = None,
) -> Layout:
    """How ``array`` lies in memory and in the whole; raises varve.InvalidArgument for what does not fit. ``order``
    counts where ``array`` lies in both orders; None: as its strides say where it is a part, else "C"."""
    writable(name, array)
    if (global_shape is None) != (offset is None):
        raise _errors.InvalidArgument(f"global_shape and offset belong together: {name}")
    low, high = _ghost_cells(name, array.ndim, ghosts)
    for what, numbers in (("global_shape", global_shape), ("offset", offset)):
        if numbers is not None and len(numbers) != array.ndim:
            raise _errors.InvalidArgument(f"{what} has {len(numbers)} dimensions, the array {array.ndim}: {name}")
    number, lead = element(array.dtype)
    cells = list(array.shape)
    whole = counts(name, "global_shape", () if global_shape is None else global_shape)
    first = counts(name, "offset", () if offset is None else offset)
    fastest_first = _is_fastest_first(name, array, order, global_shape is not None)
    if lead > 1:
        # The parts of an element are the fastest dimension.
        at = 0 if fastest_first else array.ndim
        cells.insert(at, lead)
        if whole:
            whole.insert(at, lead)
            first.insert(at, 0)
        if low:
            low.insert(at, 0)
            high.insert(at, 0)
    return Layout(number, address_of(array), array.size * lead, cells, low, high, whole, first, fastest_first)


def counts(name: str, what: str, numbers: Sequence[int]) -> list[int]:
    """Numbers of cells as the C interface takes them; raises if they are none."""
    try:
        cells = [operator.index(number) for number in numbers]
    except TypeError as error:
        raise _errors.InvalidArgument(f"{what} counts cells: {name}, not {numbers}", "say whole numbers") from error
    if any(not 0 <= number < 1 << 64 for number in cells):
        raise _errors.InvalidArgument(f"{what} cannot be {tuple(cells)}: {name}", "it counts cells, from 0 on")
    return cells


def check_order(order: Order) -> None:
    """Raises unless there is such an order."""
    if order not in ("C", "F"):
        raise _errors.InvalidArgument(f"there is no such order of dimensions: {order}", 'say "C" or "F"')


def _is_fastest_first(name: str, array: Array, order: Order | None, is_part: bool) -> bool:
    in_c, in_f = array.flags.c_contiguous, array.flags.f_contiguous
    if order is not None:
        check_order(order)
        if not (in_c if order == "C" else in_f):
            raise _errors.InvalidArgument(
                f'an array does not lie in the order "{order}": {name}',
                f'say order="{"F" if in_f else "C"}", or make it with order="{order}"',
            )
        return order == "F"
    if in_c != in_f:
        return bool(in_f)
    # A column, a row, and what is empty lie in both orders; other ranks' parts may not, and all are of one whole. What
    # is no part is C's as ever: a restart on as many ranks wants the shape that was saved.
    return is_part and _strides_are_of_f(array)


def _strides_are_of_f(array: Array) -> bool:
    """Of what lies in both orders: whether it was made in Fortran's. False also if that cannot be seen."""
    of_c, of_f, cells = [], [], [max(1, length) for length in array.shape]
    for at in range(array.ndim):
        of_c.append(array.itemsize * math.prod(cells[at + 1 :]))
        of_f.append(array.itemsize * math.prod(cells[:at]))
    strides = list(array.strides)
    if strides in (of_c, of_f):
        return strides != of_c
    # A piece of a larger array has the strides of that; dimensions that np.newaxis made have none.
    said = [stride for stride in strides if stride != 0]
    return said == sorted(said) and said != sorted(said, reverse=True)


def _ghost_cells(
    name: str, dimensions: int, ghosts: int | Sequence[int | tuple[int, int]] | None
) -> tuple[list[int], list[int]]:
    if ghosts is None:
        return [], []
    if isinstance(ghosts, (int, np.integer)):
        ghosts = [int(ghosts)] * dimensions
    if len(ghosts) != dimensions:
        raise _errors.InvalidArgument(f"ghosts has {len(ghosts)} dimensions, the array {dimensions}: {name}")
    pairs = [(width, width) if isinstance(width, (int, np.integer)) else width for width in ghosts]
    low, high = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return counts(name, "ghosts", low), counts(name, "ghosts", high)


def dtype_of(type_name: str, element_bytes: int) -> np.dtype[Any]:
    """The type of NumPy for what a set calls "F64LE" or "BYTES"."""
    kinds = {"F": "f", "I": "i", "U": "u"}
    order = {"LE": "<", "BE": ">"}.get(type_name[-2:])
    if type_name[:1] in kinds and order is not None and type_name[1:-2].isdigit():
        return np.dtype(f"{order}{kinds[type_name[0]]}{element_bytes}")
    if type_name[:1] in kinds and type_name[1:].isdigit() and element_bytes == 1:
        return np.dtype(f"{kinds[type_name[0]]}1")
    if type_name[:1] == "T" and type_name[1:].isdigit():
        return np.dtype(f"S{element_bytes}")
    return np.dtype("u1") if element_bytes == 1 else np.dtype(f"V{element_bytes}")
