"""Every call of the Engine's API says who asks, and routes know no other way to the Engine."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_type_hints

from test_architecture import PACKAGE, imported_modules, named, python_files, tree
from towline.engine.api import EngineApi
from towline.engine.parts import EngineParts
from towline.model.principal import Principal

ROUTES = python_files(PACKAGE / "server" / "routes")
#: What a route may know of the Engine besides its API: what passes, and words for it.
PASSES = (
    "towline.engine.calls.files.FilePath",
    "towline.engine.following.output",
    "towline.engine.views",
    "towline.engine.wording",
)


class Anything:
    """Parts that nobody looks into."""

    def __getattr__(self, name: str) -> "Anything":
        return Anything()


def groups() -> dict[str, Any]:
    return vars(EngineApi(cast("EngineParts", Anything())))


def test_every_call_of_the_engines_api_has_a_principal_as_its_first_argument() -> None:
    calls = 0
    for name, group in groups().items():
        public = inspect.getmembers(type(group), inspect.isfunction)
        for called, method in ((n, m) for n, m in public if not n.startswith("_")):
            _, *given = inspect.signature(method).parameters
            assert given[:1] == ["who"], f"{name}.{called}"
            assert get_type_hints(method)["who"] is Principal, f"{name}.{called}"
            calls += 1
    assert calls > 40


def test_nothing_but_calls_is_to_be_had_of_it() -> None:
    """What it is made of stays behind it: a part would answer whoever asks."""
    for name, group in groups().items():
        open_to_all = [one for one in vars(group) if not one.startswith("_")]
        assert not open_to_all, f"{name}: {open_to_all}"


def uses_of_api(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Line and text of whatever a route does with the API, and whether it is a call for whoever
    asks, as `call.api.jobs.why(call.who, ...)` is."""
    nodes = list(ast.walk(tree(path)))
    parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("api", "parts"):
            method = parents.get(id(parents.get(id(node))))
            call = parents.get(id(method))
            fine = (
                isinstance(method, ast.Attribute)
                and isinstance(call, ast.Call)
                and call.func is method
                and [ast.unparse(one) for one in call.args[:1]] == ["call.who"]
            )
            yield node.lineno, ast.unparse(call or node), fine


def test_routes_call_the_api_for_whoever_asks_and_do_nothing_else_with_it() -> None:
    uses = [(path, *use) for path in ROUTES for use in uses_of_api(path)]
    assert len(uses) > 40
    wrong = [f"{named(path)}:{line}: {text}" for path, line, text, fine in uses if not fine]
    assert not wrong, "\n".join(["nobody says who asks:", *wrong])


def test_routes_know_nothing_that_an_engine_is_made_of() -> None:
    inside = [
        f"{named(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in ROUTES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr in ("engine", "store", "fleet")
        and not ast.unparse(node).startswith("call.api.")
    ]
    assert not inside, "\n".join(["past the Engine's API:", *inside])


def test_routes_import_nothing_of_the_engine_but_what_passes() -> None:
    known = [
        f"{named(path)}:{line}: {name}"
        for path in ROUTES
        for line, name in imported_modules(path)
        if name.startswith(("towline.engine.", "towline.store.", "towline.core."))
        and not name.startswith(PASSES)
    ]
    assert not known, "\n".join(["past the Engine's API:", *known])
