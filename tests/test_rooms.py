"""The layers inside a package, as ARCHITECTURE.md draws them."""

import pytest

from test_architecture import (
    PACKAGE,
    PLUGINS,
    imported_modules,
    layers,
    named,
    part_of,
    python_files,
)

#: Folders whose own layers are drawn, too.
INSIDE = ("core", "backends", "agent/remote")


@pytest.mark.parametrize("folder", INSIDE)
def test_every_room_has_a_place_in_the_layers_of_its_house(folder: str) -> None:
    rooms = {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
    there = rooms | {path.stem for path in (PACKAGE / folder).glob("*.py")}
    drawn = set(layers(f"### Inside `{folder}/`"))
    assert rooms <= drawn <= there


@pytest.mark.parametrize("folder", INSIDE)
def test_imports_point_down_inside_too(folder: str) -> None:
    height, package = layers(f"### Inside `{folder}/`"), f"towline.{folder.replace('/', '.')}"
    upward = [
        f"{named(path)}:{line}: {part} imports {name}"
        for path in python_files(PACKAGE / folder)
        if (part := path.relative_to(PACKAGE / folder).parts[0].removesuffix(".py")) in height
        for line, name in imported_modules(path)
        if height.get(part_of(name, package), -1) > height[part]
    ]
    assert not upward, "\n".join(["imports that point up:", *upward])


def test_hydra_is_known_to_its_plugins_alone() -> None:
    """Whoever does not use Hydra neither has nor loads it; and its folder belongs to nobody."""
    known = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE)
        for line, name in imported_modules(path)
        if name.split(".")[0] in {"hydra", "omegaconf", "hydra_plugins"}
    ]
    assert not known, "\n".join(["imports of Hydra:", *known])
    assert not (PLUGINS / "__init__.py").exists()
