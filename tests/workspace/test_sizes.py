"""What no machine could start is refused before anything travels."""

import pytest

from towline.errors import UsageError
from towline.workspace.ask import check_size


def test_a_command_beyond_what_linux_starts_is_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError) as refused:
        check_size(["true", "x" * 1_000_000], {"A": "x" * 3_000_000}, {"B": "x" * 3_000_000})
    assert "7.0 MB" in refused.value.text and "file" in refused.value.hint
    check_size(["true"], {"A": "x" * 5_000_000})
