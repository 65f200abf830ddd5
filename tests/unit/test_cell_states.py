"""The integer type in which `validator.core.cell_states` stores each cell's share of the totals."""

from __future__ import annotations

import numpy as np

from validator.core.cell_states import signed_for


def test_a_share_fits_its_type_which_is_signed_and_the_smallest() -> None:
    for bits in range(63):
        for most in ((1 << bits) - 1, 1 << bits):
            found = signed_for(most)
            assert np.issubdtype(found, np.signedinteger), most
            assert most <= np.iinfo(found).max
            assert found == np.int8 or most > np.iinfo(f"int{4 * found.itemsize}").max
