"""What bubblewrap is told, and what a box may be asked to be."""

from pathlib import Path
from typing import Any

import pytest

from towline.agent.remote.box import arguments, description, filter, limits, network, system
from towline.agent.remote.box.arguments import BoxPlan, Features, System
from towline.agent.remote.refusal import Refusal
from towline.backends.machines.walls import inside

JOB = b"/home/pit/.towline/jobs/a"


def plan_of(**changed: Any) -> BoxPlan:
    given: dict[str, Any] = {
        "name": b"job-a",
        "environ": {b"TOKEN": b"secret", b"PATH": b"/usr/bin"},
        "binds": [(JOB + b"/src", JOB + b"/src", "rw"), (b"/sw", b"/sw", "ro")],
        "folder": JOB + b"/src",
        "own_network": True,
        "private_bytes": 1000,
    }
    return BoxPlan(**(given | changed))


def words_of(plan: BoxPlan, devices: list[bytes] | None = None, **features: bool) -> list[bytes]:
    machine = System([b"/usr", b"/opt"], {b"/bin": b"usr/bin"}, devices or [])
    return arguments.arguments(plan, machine, Features(**features))


def after(words: list[bytes], option: bytes) -> list[tuple[bytes, bytes]]:
    """The two words behind each place of an option."""
    return [(words[at + 1], words[at + 2]) for at, word in enumerate(words) if word == option]


def test_every_namespace_but_the_network_is_always_the_box_s_own() -> None:
    for own in (True, False):
        words = words_of(plan_of(own_network=own))
        for name in ("user", "pid", "ipc", "uts", "cgroup-try"):
            assert f"--unshare-{name}".encode() in words
        assert (b"--unshare-net" in words) == own
        assert {b"--die-with-parent", b"--new-session", b"--clearenv"} <= {*words}
        assert words[words.index(b"--cap-drop") + 1] == b"ALL"


def test_nothing_is_written_but_the_binds_that_say_so() -> None:
    words = words_of(plan_of())
    assert after(words, b"--bind") == [(JOB + b"/src", JOB + b"/src")]
    assert (b"/sw", b"/sw") in after(words, b"--ro-bind")
    assert {source for source, _ in after(words, b"--ro-bind")} == {b"/usr", b"/opt", b"/sw"}
    # The last words on the root and the devices, behind all that is put there.
    assert words.index(b"--remount-ro") > max(at for at, w in enumerate(words) if w == b"--bind")
    closed = [words[at + 1] for at, word in enumerate(words) if word == b"--remount-ro"]
    assert closed == [b"/dev", b"/"]


def test_no_folder_that_a_job_must_not_see_is_shown() -> None:
    words = words_of(plan_of(binds=[]))
    shown = {
        place for option in (b"--ro-bind", b"--ro-bind-try") for place, _ in after(words, option)
    }
    for hidden in (b"/", b"/home", b"/root", b"/run", b"/var", b"/sys", b"/etc", b"/dev", b"/proc"):
        assert hidden not in shown
    assert not [path for path in shown if b"shadow" in path or b"passwd" in path or b"ssh" in path]


def test_settings_of_the_kernel_are_read_only_above_the_box_s_own_processes() -> None:
    words = words_of(plan_of())
    for place in (b"/proc/sys", b"/proc/sysrq-trigger"):
        assert (place, place) in after(words, b"--ro-bind-try")
        assert words.index(place) > words.index(b"--proc")


def test_own_devices_come_above_dev_and_bring_what_cuda_looks_at() -> None:
    words = words_of(plan_of(), [b"/dev/nvidia2"])
    assert after(words, b"--dev-bind-try") == [(b"/dev/nvidia2", b"/dev/nvidia2")]
    assert words.index(b"--dev-bind-try") > words.index(b"--dev")
    assert (b"/sys/module", b"/sys/module") in after(words, b"--ro-bind-try")
    assert b"/sys/module" not in words_of(plan_of())


def test_private_folders_are_bounded_where_bubblewrap_can() -> None:
    words = words_of(plan_of())
    for place in (b"/tmp", b"/var/tmp", b"/dev/shm"):
        at = words.index(b"--tmpfs", words.index(place) - 1)
        assert words[at - 4 : at + 2] == [
            b"--perms",
            b"1777",
            b"--size",
            b"1000",
            b"--tmpfs",
            place,
        ]
    assert b"--size" not in words_of(plan_of(), size=False)
    assert b"--disable-userns" in words
    assert b"--disable-userns" not in words_of(plan_of(), no_nesting=False)


def test_names_are_asked_of_the_way_out_and_not_of_the_machine() -> None:
    own, host = words_of(plan_of()), words_of(plan_of(own_network=False))
    place = b"/etc/resolv.conf"
    assert (b"%d" % arguments.RESOLV, place) in after(own, b"--file")
    assert (place, place) not in after(own, b"--ro-bind-try")
    assert (place, place) in after(host, b"--ro-bind-try")


def test_words_travel_separated_by_nul_and_none_can_hold_one() -> None:
    assert arguments.packed([b"--setenv", b"A", b"two\nlines"]) == b"--setenv\0A\0two\nlines\0"
    with pytest.raises(ValueError, match="NUL"):
        arguments.packed([b"--setenv", b"A", b"x\0--bind\0/\0/"])
    with pytest.raises(ValueError, match="so many variables"):
        arguments.packed([b"x"] * 9000)


@pytest.mark.parametrize(
    "box",
    [
        "yes",
        {"network": "all"},
        {"binds": "no"},
        {"binds": [["/a", "/b"]]},
        {"binds": [["a", "/b", "ro"]]},
        {"binds": [["/a/../b", "/b", "ro"]]},
        {"binds": [["/a", "/b/", "ro"]]},
        {"binds": [["/a\0", "/b", "ro"]]},
        {"binds": [["/a", "/b", "all"]]},
        {"binds": [["/", "/", "rw"]]},
        {"binds": [["/a", "/proc/1", "ro"]]},
        {"binds": [["/a", "/dev/sda", "ro"]]},
        {"binds": [["/a", "/etc", "ro"]]},
        {"binds": [["/a", "/b", "ro"], ["/c", "/b", "ro"]]},
        {"binds": [["/a", "/b", "rw"], ["/c", "/b/c", "ro"]]},
        {"gpus": [0]},
        {"other": 1},
    ],
)
def test_a_box_that_makes_no_sense_is_refused(box: Any) -> None:
    with pytest.raises(Refusal):
        description.checked_box(box)


def test_a_box_is_complete_once_it_is_checked() -> None:
    assert description.checked_box(None) is None
    whole = description.checked_box({"binds": [["/a", "/b", "ro"], ["/c", "/b/c", "rw"]]})
    assert whole == {
        "network": "own",
        "binds": [["/a", "/b", "ro"], ["/c", "/b/c", "rw"]],
        "gpus": [],
    }


def test_what_is_shown_has_no_link_on_its_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    description.check_sources([[f"{tmp_path}/real", "/x", "ro"]])
    for path, why in ((f"{tmp_path}/link", "by a link"), (f"{tmp_path}/none", "there is no")):
        with pytest.raises(ValueError, match=why):
            description.check_sources([[path, "/x", "ro"]])


def test_a_gpu_s_device_is_found_by_its_identity_and_not_by_its_index(tmp_path: Path) -> None:
    for bus, uuid, minor in (("0:1", "GPU-a", 3), ("0:2", "GPU-b", 0)):
        about = tmp_path / f"proc/driver/nvidia/gpus/{bus}/information"
        about.parent.mkdir(parents=True)
        about.write_text(f"Model: \t\t GTX\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    root = str(tmp_path)
    assert system.devices(["GPU-a"], root) == ["/dev/nvidia3", "/dev/nvidiactl"]
    assert system.devices(["GPU-c"], root) == []
    assert system.devices([], root) == []


def test_systems_with_folders_of_their_own_beside_usr_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").symlink_to("usr/bin")
    found = system.look((), str(tmp_path))
    assert found.folders == [b"/usr", b"/lib"]
    assert found.links == {b"/bin": b"usr/bin"}


def test_keys_cannot_be_asked_for_by_any_number_of_the_call() -> None:
    for name in filter.ARCHITECTURES:
        code = filter.program(name)
        assert len(code) % 8 == 0 and code.endswith(filter.step(filter.RETURN, filter.ALLOW))
        for number in filter.ARCHITECTURES[name][1]:
            assert filter.step(filter.EQUAL, number, 0, 1) in code
    assert filter.step(filter.AT_LEAST, filter.X32, 0, 1) in filter.program("x86_64")
    assert filter.program("riscv64") == filter.step(filter.RETURN, filter.ALLOW)


def test_the_way_out_never_leads_to_the_machine_s_loopback() -> None:
    words = network.words(b"slirp4netns", 7, 5, 6)
    assert {b"--disable-host-loopback", b"--enable-sandbox", b"--enable-seccomp"} <= {*words}
    assert words[-2:] == [b"7", b"tap0"]


def test_limits_are_told_where_the_control_group_is_ours(tmp_path: Path) -> None:
    group = tmp_path / "user.slice/mine"
    group.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (group / "cgroup.controllers").write_text("cpu memory pids\n")
    membership, root = "0::/user.slice/mine\n", str(tmp_path)
    assert limits.look(membership, root, lambda path: True) == ("cgroup", "")
    assert "not this account's" in limits.look(membership, root, lambda path: False)[1]
    (group / "cgroup.controllers").write_text("memory pids\n")
    assert limits.look(membership, root, lambda path: True)[1].endswith("has no cpu")
    assert limits.look("4:memory:/x\n", root)[0] == ""


def test_gpus_are_numbered_from_0_inside_unless_the_user_chose() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "2,5", "RANK": "0"}
    assert inside(given, {})["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert inside(given, {"CUDA_VISIBLE_DEVICES": "2,5"}) == given
    assert inside({"CUDA_VISIBLE_DEVICES": ""}, {})["CUDA_VISIBLE_DEVICES"] == ""
    assert inside({"A": "1"}, {}) == {"A": "1"}
