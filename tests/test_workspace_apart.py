"""Engine and submitter are apart: one protocol is between them."""

import re

from test_architecture import PACKAGE, imported_modules, named, python_files

#: What the Engine keeps of its own in files: its diary, copies of outputs that are followed.
OWN_FILES = {"cleaning/housekeeping.py", "results/followed.py", "results/kept.py"}


def test_the_engine_knows_the_submitters_side_by_one_protocol() -> None:
    """A team's server hands to a client what a laptop's Engine hands to a folder."""
    particular = [
        f"{named(path)}:{line}: {name}"
        for path in python_files(PACKAGE / "engine")
        for line, name in imported_modules(path)
        if name.startswith("towline.workspace.")
        and not f"{name}.".startswith("towline.workspace.base.")
    ]
    assert not particular, "\n".join(["what a submitter's side is made of:", *particular])


def test_the_engine_puts_nothing_into_a_folder_of_a_submitter() -> None:
    """The folder is data of the submission: it is shown, and read by its own side alone."""
    engine = PACKAGE / "engine"
    written = re.compile(
        r"(?<!def )(?<![.\w])open\(|\bos\.(open|write|link|replace|rename|mkdir|unlink|symlink)\("
    )
    touched = [
        f"{named(path)}:{number}: {line.strip()}"
        for path in python_files(engine)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (written.search(line) and path.relative_to(engine).as_posix() not in OWN_FILES)
        or ("spec.folder" in line and path.name != "views.py")
    ]
    assert not touched, "\n".join(["the submitter's folder:", *touched])
