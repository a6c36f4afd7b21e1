"""A submission that is asked for again, even at the same moment, is made once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from e2e.api import ask
from testbed.tow import Tow


def test_requests_with_one_key_at_the_same_moment_are_one_job_and_get_one_answer(
    tow: Tow, tow_home: Path
) -> None:
    assert tow("run", "true").returncode == 0
    for at in range(30):
        (tow.folder / f"f{at}").write_bytes(bytes(100_000))
    base = {"argv": ["true"], "cwd": str(tow.folder)}
    one = {"jobs": [base, base]}
    batch = {"base": base, "lines": [{"argv": ["true"]}], "name": "b"}

    def submit(path: str, body: Any, key: str) -> Any:
        status, answer = ask(tow_home, "POST", path, body, {"Idempotency-Key": key})
        assert status == 200, answer
        return answer

    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: submit("/v1/jobs", one, "k1"), range(8)))
        batches = list(pool.map(lambda _: submit("/v1/batches", batch, "k2"), range(8)))
    assert {tuple(job["id"] for job in answer["jobs"]) for answer in jobs} == {(2, 3)}
    assert {answer["batch"]["name"] for answer in batches} == {"b"}
    assert len(tow.json("status", "--all")["jobs"]) == 3
    assert len(tow.json("status", "--all")["batches"]) == 1


def test_long_keys_that_begin_alike_are_two(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    body = {"jobs": [{"argv": ["true"], "cwd": str(tow.folder)}]}
    keys = ["x" * 100 + end for end in "abab"]
    answers = [ask(tow_home, "POST", "/v1/jobs", body, {"Idempotency-Key": key}) for key in keys]
    assert [answer["jobs"][0]["id"] for _, answer in answers] == [2, 3, 2, 3]
