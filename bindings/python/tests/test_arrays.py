"""What the C interface is told of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import varve
from varve._arrays import layout_of


def part(array: Any, order: Any = None) -> Any:
    """The layout of a part of a whole."""
    whole = [100 + at for at in range(array.ndim)]
    return layout_of("part", array, whole, list(range(array.ndim)), order=order)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(8, 2), (8, 1), (1, 8), (1, 1, 8), (1, 8, 1), (8, 1, 1), (2, 3, 1), (1, 2, 3)])
@pytest.mark.parametrize("dtype", ["f8", "c16", "f2"])
def test_a_part_of_a_whole_has_the_order_it_was_made_in(dtype: str, shape: tuple[int, ...], order: Any) -> None:
    array: Any = np.zeros(shape, dtype, order)
    layout = part(array)
    assert layout.fastest_first == (order == "F")
    lead, offset = [2] * (dtype != "f8"), list(range(len(shape)))
    assert layout.cells == (lead + list(shape) if order == "F" else list(shape) + lead)
    assert layout.global_offset == ([0] * len(lead) + offset if order == "F" else offset + [0] * len(lead))
    assert part(array, order) == layout
    assert part(array.T).fastest_first == (order == "C")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_piece_of_a_larger_array_has_the_order_of_that(order: Any) -> None:
    larger = np.zeros((4, 5, 6), order=order)
    ends = [slice(0, 1), slice(1, 1), slice(2, 3)]
    pieces: list[Any] = [larger[a, b, c] for a in ends for b in ends for c in ends]
    pieces += [larger[:, :1, :1], larger[:, :, 2:2]] if order == "F" else [larger[:1, :1], larger[2:2]]
    for piece in pieces:
        assert piece.flags.c_contiguous
        assert piece.flags.f_contiguous
        assert part(piece).fastest_first == (order == "F")


@pytest.mark.parametrize(
    "array",
    [np.zeros((1, 1), order="F"), np.zeros((8, 0), order="F"), np.zeros(8, order="F"), np.zeros((), order="F"),
     np.zeros(8)[np.newaxis, :], np.zeros(8)[:, np.newaxis]],
)
def test_where_nothing_tells_the_order_the_slowest_is_first_unless_it_is_said(array: Any) -> None:
    for order in (None, "C"):
        assert not part(array, order).fastest_first
    assert part(array, "F").fastest_first


def test_what_is_said_counts_where_an_array_lies_in_both_orders() -> None:
    # np.ascontiguousarray() gives a single column as it is.
    column = np.ascontiguousarray(np.zeros((8, 4), order="F")[:, :1])
    assert part(column).fastest_first
    assert not part(column, "C").fastest_first
    assert part(np.zeros((8, 1)), "F").fastest_first


@pytest.mark.parametrize("shape", [(8, 1), (1, 8), (8, 0), (1, 1)])
def test_what_is_no_part_of_a_whole_has_the_shape_of_checkpoints_of_before(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, order="F")
    assert not layout_of("array", array).fastest_first
    assert layout_of("array", array, order="F").fastest_first


def test_numbers_of_cells_may_be_of_any_whole_type() -> None:
    array, wanted = np.zeros((5, 4)), layout_of("a", np.zeros((5, 4)), (8, 9), (1, 2), [(1, 1), (0, 2)])
    one: Any = np.int64(1)
    whole, offset, zero = np.array([8, 9]), np.array([1, 2], np.uint8), np.int8(0)
    said = layout_of("a", array, whole, offset, [one, (zero, 2)])  # type: ignore[arg-type, list-item]
    for name in ("global_cells", "global_offset", "ghosts_low", "ghosts_high"):
        assert getattr(said, name) == getattr(wanted, name)
        assert all(type(number) is int for number in getattr(said, name))
    assert layout_of("a", array, ghosts=one).ghosts_high == [1, 1]


@pytest.mark.parametrize("wrong", [-1, 1 << 64, 0.5, "2"])
def test_what_is_no_number_of_cells_is_refused_by_name(wrong: Any) -> None:
    array = np.zeros((5, 4))
    with pytest.raises(varve.InvalidArgument, match="^offset .*: data") as error:
        layout_of("data", array, (8, 8), (0, wrong))
    assert error.value.hint
    with pytest.raises(varve.InvalidArgument, match="^global_shape .*: data"):
        layout_of("data", array, (wrong, 8), (0, 0))
    with pytest.raises(varve.InvalidArgument, match="^ghosts .*: data"):
        layout_of("data", array, ghosts=[(0, wrong), (0, 0)])


@pytest.mark.parametrize(("made", "said"), [("C", "F"), ("F", "C")])
def test_an_order_in_which_an_array_does_not_lie_is_refused(made: Any, said: Any) -> None:
    array = np.zeros((3, 2), order=made)
    with pytest.raises(varve.InvalidArgument, match=f'not lie in the order "{said}": part') as error:
        part(array, said)
    assert f'order="{made}"' in error.value.hint
    with pytest.raises(varve.InvalidArgument, match="no such order of dimensions: A"):
        part(array, "A")
