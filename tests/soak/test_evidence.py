"""What is known of a job that went wrong is told."""

from pathlib import Path

from soak.evidence import THERE, evidence
from towline.core import jobs
from towline.model.job import JobSpec
from towline.model.journal import Kind, Told
from towline.store.store import Store


def test_what_was_written_here_and_there_of_a_wrong_job_is_told(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.db"))
    spec = JobSpec(argv=("true",), cluster="lab", owner="me")
    for number in (1, 2):
        job = jobs.accepted(number, spec, 100.0)
        store.commit({number: job}, {number}, [Told(Kind.SUBMITTED, None, job)], 100.0)
    store.close()
    record = tmp_path / "h1" / THERE / "records" / "engine-2-1-token-0"
    record.mkdir(parents=True)
    (record / "exit").write_text('{"code": 5}')
    (tmp_path / "h1" / THERE / "trouble.log").write_text("3.11 ValueError\n")
    wrong = ["job 2: made.txt differs", "other"]
    lines = evidence(wrong, tmp_path, [tmp_path / "h1"], lambda job: [f"killed under {job}"])
    found = "\n".join(lines)
    assert "killed under 2" in found and "trouble.log: 3.11 ValueError" in found
    assert "job 2:" in found and "job 1:" not in found
    assert "submitted" in found
    assert 'exit: {"code": 5}' in found
