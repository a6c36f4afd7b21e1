"""Who may call what."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_architecture import PACKAGE, named, python_files, tree
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


#: What names something that belongs to somebody, in a path, a query or a body.
NAMES = {"job_id", "name", "local"}
FIELDS = {"job", "ids", "name", "batch", "batches"}


def unasked(path: Path) -> Iterator[str]:
    """Calls of the Engine that are given a name, and not who asks."""
    for call in (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)):
        what, given = ast.unparse(call.func), [ast.unparse(one) for one in call.args]
        is_name = (
            ast.unparse(one)
            for one in call.args
            if (isinstance(one, ast.Name) and one.id in NAMES)
            or (
                isinstance(one, ast.Attribute)
                and one.attr in FIELDS
                and ast.unparse(one.value) in ("query", "body", "asked")
            )
        )
        of_desk = what.startswith(("desk.", "call.desk.", "forwards."))
        if of_desk and any(is_name) and given[0] not in ("call.who", "who"):
            yield f"{named(path)}:{call.lineno}: {ast.unparse(call)}"


def test_what_is_named_is_looked_up_for_whoever_asks() -> None:
    """Clusters and machines are everybody's; changing them is for administrators."""
    routes = python_files(PACKAGE / "server" / "routes")
    of_owners = [path for path in routes if path.stem not in ("clusters", "limits")]
    found = [call for path in of_owners for call in unasked(path)]
    assert not found, "\n".join(["nobody says who asks:", *found])
