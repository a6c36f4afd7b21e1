"""Ranges of a sweep, as Python and Hydra write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import UsageError
from towline.model.parameters import matrix_commands, with_ranges

SMALL = st.integers(-30, 30)


@given(first=SMALL, last=SMALL, step=SMALL)
def test_range_has_the_numbers_that_python_gives_it(first: int, last: int, step: int) -> None:
    text = f"n=range({first},{last},{step})"
    wanted = list(range(first, last, step)) if step else []
    if not wanted:
        with pytest.raises(UsageError, match="no numbers"):
            with_ranges(text)
        return
    commands = matrix_commands([with_ranges(text)], ["echo", "{n}"])
    assert [command.argv for command in commands] == [["echo", str(n)] for n in wanted]


def test_what_is_no_range_stays_as_it_is() -> None:
    assert with_ranges("seed=range(3)") == "seed=0..2..1"
    assert with_ranges("a=1,2") == "a=1,2"
    assert with_ranges("range(3)=x") == "range(3)=x"
    assert with_ranges("a=x,range(2),range(1, 3)") == "a=x,0..1..1,1..2..1"
