"""The index of cells against a dictionary, also with colliding hashes."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.worlds import seeds
from validator.reconcile import cell_index
from validator.reconcile.cell_index import CellIndex

_WINDOWS = (0, 1, -5, 2**62, -(2**63))
_KEYS = ("", "a", "b", "a\0", "\0", None, "é", "aaaaaaaa", "aaaaaaaaa", "aaaaaaaab", "a" * 16)

Cell = tuple[int, str | None]


@pytest.mark.parametrize("hashes", [None, 1, 3])
@pytest.mark.parametrize("seed", seeds(40))
def test_cells_are_numbered_as_a_dictionary_would(
    seed: int, hashes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``hashes``: number of distinct hashes; None as in production."""
    if hashes is not None:
        found = cell_index._hashes
        monkeypatch.setattr(cell_index, "_hashes", lambda *given: found(*given) % np.uint64(hashes))
    draw, index, known = random.Random(seed), CellIndex(), dict[Cell, int]()
    for _ in range(draw.randrange(1, 12)):
        cells = [(draw.choice(_WINDOWS), _key(draw)) for _ in range(draw.randrange(60))]
        windows = np.array([window for window, _ in cells], dtype=np.int64)
        keys: Any = pa.array([key for _, key in cells], pa.string())
        if draw.random() < 0.3:
            keys = pa.chunked_array([keys[: len(cells) // 2], keys[len(cells) // 2 :]])
        assert index.find(windows, keys).tolist() == [known.get(cell, -1) for cell in cells]
        if draw.random() < 0.7:
            assert index.add(windows, keys).tolist() == [known.setdefault(cell, len(known)) for cell in cells]
        else:
            stays = [cell for cell in known if draw.random() < 0.7]
            index.keep(np.array([known[cell] for cell in stays], dtype=np.int64))
            known = {cell: number for number, cell in enumerate(stays)}
        assert index.keys(np.arange(len(index))).to_pylist() == [key for _, key in known]


def test_empty_keys_are_added_after_all_other_keys_are_removed() -> None:
    index = CellIndex()
    index.add(np.array([0, 60]), pa.array(["", "b"]))
    index.keep(np.array([0]))
    assert index.add(np.array([120]), pa.array([""])).tolist() == [1]
    index.keep(np.array([], dtype=np.int64))
    assert index.add(np.array([120]), pa.array([""])).tolist() == [0]


def test_the_index_grows_beyond_its_first_slots() -> None:
    index, keys = CellIndex(), pa.array([f"key-{number}" for number in range(20_000)])
    windows = np.arange(20_000, dtype=np.int64) % 7
    for start in range(0, 20_000, 3_000):
        part = slice(start, start + 3_000)
        assert index.add(windows[part], keys[part]).tolist() == list(range(start, min(start + 3_000, 20_000)))
    assert index.find(windows, keys).tolist() == list(range(20_000))


def _key(draw: random.Random) -> str | None:
    return draw.choice(_KEYS) if draw.random() < 0.6 else "".join(draw.choices("ab\0", k=draw.randrange(20)))
