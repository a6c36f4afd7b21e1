"""What `pip install` brings along."""

import re
from importlib import metadata

#: Commands of others that come with what we need.
COMMANDS_OF_OTHERS = {"idna", "markdown-it", "normalizer", "pygmentize", "uvicorn"}


def needed(name: str, found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """A package and all that it needs here, without extras."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return found
    try:
        found[key] = package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return found  # only for another system, or another Python
    for requirement in package.requires or ():
        if "extra ==" not in requirement:
            needed(re.split(r"[^\w.-]", requirement)[0], found)
    return found


def test_an_installation_brings_few_packages_and_hardly_any_commands_of_others() -> None:
    found = needed("towline", {})
    assert {"starlette", "uvicorn", "rich"} <= found.keys()
    assert len(found) <= 20, sorted(found)
    del found["towline"]
    commands = {
        entry.name
        for package in found.values()
        for entry in package.entry_points
        if entry.group == "console_scripts"
    }
    assert commands <= COMMANDS_OF_OTHERS
