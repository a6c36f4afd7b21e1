"""What a folder costs over a long way: one question, however many files are in it."""

from typing import Any

import pytest

from cli.stub import Stub, answer


@pytest.mark.real
def test_looking_at_all_files_of_a_mounted_folder_is_one_question(stub: Stub) -> None:
    # Not above: it needs libfuse, which the inner loop does without.
    from towline.cli.mounted import JobFolder

    facts = {"size": 4, "mode": 0o644, "kind": "file", "mtime": 1000.0}
    entries: list[dict[str, Any]] = [{"name": f"f{number}", **facts} for number in range(500)]
    link = {"name": "link", "kind": "link", "size": 2, "mtime": 1000.0, "mode": 0o777}
    entries.append({**link, "leads_to": {"name": "f1", **facts}})
    stub.on("GET /v1/jobs/12/files", answer({"entries": entries}))
    folder = JobFolder(12, lambda: None)
    names = folder.readdir("/", 0)
    assert len(names) == 503
    assert [folder.getattr(f"/{name}")["st_size"] for name in names[2:]] == [4] * 501
    assert len(stub.asked) == 1
