"""Towline asks ssh for the fast cipher, unless the user has asked for one."""

import asyncio
import re
from pathlib import Path

import pytest

from towline.hosts import ciphers
from towline.hosts.ciphers import faster_ciphers, reordered
from towline.hosts.ssh import SshHost

GCM = "aes128-gcm@openssh.com"
CHACHA = "chacha20-poly1305@openssh.com"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphers, "_has_aes", lambda: True)


def question(config: Path) -> list[str]:
    return ["ssh", "-F", str(config), "-G", "--", "somewhere"]


def test_no_cipher_is_added_and_none_is_lost() -> None:
    assert reordered([CHACHA, "aes128-ctr", GCM]) == [GCM, CHACHA, "aes128-ctr"]
    assert reordered([CHACHA, "aes128-ctr"]) == []
    assert reordered([]) == []


@pytest.mark.usefixtures("fast")
def test_the_real_ssh_is_asked_for_aes_where_the_user_said_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host somewhere\n  User me\n")
    found = asyncio.run(faster_ciphers(question(config)))
    assert found[0] == GCM and CHACHA in found


@pytest.mark.usefixtures("fast")
def test_what_the_user_set_holds(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host some*\n  Ciphers {CHACHA},{GCM}\n")
    assert asyncio.run(faster_ciphers(question(config))) == []


@pytest.mark.usefixtures("fast")
def test_an_ssh_that_does_not_answer_or_does_not_exist_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ciphers, "_PATIENCE_S", 0.2)
    slow = tmp_path / "ssh"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    assert asyncio.run(faster_ciphers([str(slow), "-G"])) == []
    assert asyncio.run(faster_ciphers([str(tmp_path / "missing"), "-G"])) == []


def test_without_instructions_for_aes_ssh_is_not_even_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ciphers, "_has_aes", lambda: False)
    assert asyncio.run(faster_ciphers(["/nonexistent/ssh"])) == []


@pytest.mark.usefixtures("fast")
def test_the_channel_carries_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("Host somewhere\n")
    monkeypatch.setenv("TOWLINE_SSH_CONFIG", str(config))
    host = SshHost("somewhere", "somewhere", None, str(tmp_path))
    assert "Ciphers" not in " ".join(host.channel("boot", "1"))
    asyncio.run(host.prepare())
    assert re.search(f"-o Ciphers={GCM},", " ".join(host.channel("boot", "1")))
