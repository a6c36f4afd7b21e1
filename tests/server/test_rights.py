"""Who may call what."""

import pytest

from towline.errors import Forbidden
from towline.model.principal import Principal
from towline.server.endpoints import Call, Endpoint
from towline.server.rights import RIGHTS, Right, check, check_complete
from towline.server.routes import ENDPOINTS
from towline.server.routes.engine import retire_with

SERVED = [(one.method, one.path) for one in [*ENDPOINTS, retire_with(lambda: None)]]


def test_an_endpoint_that_nobody_thought_about_is_not_served() -> None:
    async def secrets(call: Call) -> None:
        """Tell everything."""

    new = Endpoint("GET", "/v1/secrets", secrets)
    with pytest.raises(ValueError, match=r"without an entry .*/v1/secrets"):
        check_complete([*SERVED, (new.method, new.path)])
    with pytest.raises(ValueError, match="served nowhere"):
        check_complete(SERVED[1:])


@pytest.mark.parametrize("right", list(Right))
def test_only_administrators_administer(right: Right) -> None:
    check(Principal("root", administrator=True), right)
    if right is Right.ADMINISTER:
        with pytest.raises(Forbidden, match="ben is not an administrator"):
            check(Principal("ben"), right)
    else:
        check(Principal("ben"), right)


def test_what_ends_the_engine_or_changes_its_configuration_is_for_administrators() -> None:
    for path in ("/v1/engine/retire", "/v1/trust", "/v1/clusters", "/v1/gc"):
        assert RIGHTS["POST", path] is Right.ADMINISTER
