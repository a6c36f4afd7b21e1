"""A login by hand counts once the connection that it leaves behind stays."""

from pathlib import Path

import pytest

from towline.cli.login import typed_here
from towline.client.session import Login

#: Stands for ssh: logs in, and says whether its master answers.
SSH = """#!/bin/sh
echo "$*" >>"$0.asked"
[ "$1" != -O ] || exit {answers}
"""


@pytest.mark.parametrize(("answers", "is_open"), [(0, True), (255, False)])
def test_a_login_is_not_over_before_its_connection_answers(
    tmp_path: Path, answers: int, is_open: bool
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(answers=answers))
    ssh.chmod(0o755)
    command = [str(ssh), "-o", "ControlMaster=yes", "-f", "-N", "--", "gpu1"]
    login = Login({"machine": "gpu1", "target": "gpu1", "command": command})
    assert typed_here(login) is is_open
    words = " ".join(command[1:])
    asked = (tmp_path / "ssh.asked").read_text().splitlines()
    assert asked == [words, f"-O check -o ControlMaster=no {words}"]
