"""Engine and backends are apart: one protocol is between them."""

from test_architecture import PACKAGE, imported_modules, named, python_files

#: What the Engine may know of backends: what they all are, what passes, and where they come from.
DOORS = ("base", "terms", "registry", "router", "clusters", "tasks")


def test_the_engine_knows_places_of_every_kind_by_one_protocol() -> None:
    """Another kind of cluster changes nothing above the backends."""
    doors = tuple(f"towline.backends.{name}." for name in DOORS)
    particular = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(*(PACKAGE / part for part in ("engine", "server", "workspace")))
        for line, name in imported_modules(path)
        if name.startswith("towline.backends.") and not f"{name}.".startswith(doors)
    ]
    assert not particular, "\n".join(["particular backends:", *particular])
