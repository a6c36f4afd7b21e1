"""What a hostile job tries against the victim, its machine and whoever runs it.

Prints {name: what came of it}: "" where it was refused or is not there, else what was got.
"""

import ctypes
import errno
import glob
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
VICTIM = json.loads(sys.argv[1])
PID = VICTIM["pid"]
TRIES: "list[Callable[[], str]]" = []


def attempt(function: "Callable[[], str]") -> "Callable[[], str]":
    TRIES.append(function)
    return function


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(200).decode("utf-8", "replace") or "(opened)"


def call(value: int, *allowed: int) -> str:
    """Of a system call: what it returned, unless it failed."""
    if value == -1:
        number = ctypes.get_errno()
        return "" if not allowed or number in allowed else f"error {number}"
    return f"returned {value}"


def run(*argv: str) -> str:
    """What a program that must not succeed said."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=20,
        )
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")[:200] or "ok" if done.returncode == 0 else ""


def write(*paths: str) -> str:
    """Which of these could be written."""
    for path in paths:
        try:
            with open(path, "ab") as file:
                file.write(b"x")
            return path
        except OSError:
            pass
    return ""


@attempt
def t01_file_of_another_job() -> str:
    return read(VICTIM["job"] + "/src/secret")


@attempt
def t02_up_and_down_again() -> str:
    return read(f"../../{os.path.basename(VICTIM['job'])}/src/secret")


@attempt
def t03_other_jobs_by_name() -> str:
    names = os.listdir(os.path.dirname(os.environ["JOB_DIR"]))
    return ", ".join(name for name in names if name != os.path.basename(os.environ["JOB_DIR"]))


@attempt
def t04_keys_of_the_account() -> str:
    return ", ".join(os.listdir(VICTIM["home"] + "/.ssh"))


@attempt
def t05_a_link_to_them() -> str:
    os.symlink(VICTIM["home"] + "/.ssh/authorized_keys", "link-to-keys")
    return read("link-to-keys")


@attempt
def t06_root_of_another_process() -> str:
    return ", ".join(os.listdir(f"/proc/{PID}/root")[:3])


@attempt
def t07_the_old_root() -> str:
    return ", ".join(os.listdir("/proc/1/root/oldroot")[:3])


@attempt
def t08_environment_of_the_first_process() -> str:
    return read("/proc/1/environ").replace("(opened)", "")


@attempt
def t09_words_of_the_first_process() -> str:
    words = read("/proc/1/cmdline")
    return words if "secret" in words.lower() or "TOKEN" in words else ""


@attempt
def t10_ptrace() -> str:
    return call(libc.ptrace(16, PID, 0, 0))


@attempt
def t11_signal() -> str:
    return call(libc.kill(PID, 0))


@attempt
def t13_memory_of_another() -> str:
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    got = ctypes.create_string_buffer(19)
    ours = Piece(ctypes.addressof(got), 19)
    theirs = Piece(VICTIM["memory"], 19)
    return call(libc.process_vm_readv(PID, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))


@attempt
def t13b_memory_file_of_another() -> str:
    return read(f"/proc/{PID}/mem")


@attempt
def t14_shared_memory_and_temporary_files() -> str:
    name = VICTIM["name"]
    return ", ".join(glob.glob(f"/dev/shm/{name}") + glob.glob(f"/tmp/{name}"))


@attempt
def t15_shared_memory_by_key() -> str:
    return call(libc.shmget(VICTIM["shm"], 4096, 0))


@attempt
def t16_message_queues() -> str:
    return ", ".join(os.listdir("/dev/mqueue"))


@attempt
def t17_abstract_socket() -> str:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect("\0" + VICTIM["name"])
    return "connected"


@attempt
def t17b_names_of_abstract_sockets() -> str:
    return VICTIM["name"] if VICTIM["name"] in open("/proc/net/unix").read() else ""


@attempt
def t18_port_on_loopback() -> str:
    socket.create_connection(("127.0.0.1", VICTIM["port"]), 3)
    return "connected"


@attempt
def t19_key_of_the_session() -> str:
    buffer = ctypes.create_string_buffer(100)
    return call(libc.syscall(250, 11, VICTIM["keys"][0], buffer, 100, 0), errno.EPERM)


@attempt
def t20_key_of_the_user() -> str:
    buffer = ctypes.create_string_buffer(100)
    return call(libc.syscall(250, 11, VICTIM["keys"][1], buffer, 100, 0), errno.EPERM)


@attempt
def t20b_keys_by_the_other_numbers_of_calls() -> str:
    return call(libc.syscall(0x40000000 | 250, 11, VICTIM["keys"][0], None, 0, 0))


@attempt
def t21_a_device_of_its_own() -> str:
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(195, 0))
    return "made"


@attempt
def t22_devices_that_were_not_granted() -> str:
    return ", ".join(glob.glob("/dev/nvidia*") + glob.glob("/dev/dri/*") + glob.glob("/dev/sd*"))


@attempt
def t23_programs_with_more_rights() -> str:
    for argv in (["su", "-c", "id"], ["sudo", "-n", "id"], ["pkexec", "id"], ["newgrp", "root"]):
        said = run(*argv)
        if "uid=0" in said:
            return said
    return ""


@attempt
def t24_a_program_that_is_given_rights() -> str:
    shutil.copy("/usr/bin/id", "id")
    os.chmod("id", 0o6755)
    said = run("./id", "-u")
    return "" if said.strip() == str(VICTIM["uid"]) else said


@attempt
def t25_write_to_the_system() -> str:
    return write("/usr/bin/evil")


@attempt
def t26_write_its_settings() -> str:
    return write("/etc/evil", "/etc/passwd", "/evil", "/dev/evil", "/run/evil", "/var/evil")


@attempt
def t26c_settings_of_the_kernel() -> str:
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger",
    ):
        try:
            # Nothing is written, not even where it could be.
            os.close(os.open(path, os.O_WRONLY))
            return path
        except OSError:
            pass
    return ""


@attempt
def t27_make_it_writable() -> str:
    return call(libc.mount(None, b"/usr", None, 32 | 4096, None))


@attempt
def t28_take_it_away() -> str:
    return call(libc.umount2(b"/usr", 2))


@attempt
def t29_user_namespaces() -> str:
    return run("unshare", "-Ur", "id")


@attempt
def t30_into_another_namespace() -> str:
    return str(os.open(f"/proc/{PID}/ns/mnt", os.O_RDONLY))


@attempt
def t31_a_second_name_for_a_program() -> str:
    os.link("/usr/bin/id", "hard")
    return "linked"


@attempt
def t31b_a_second_name_for_what_is_kept() -> str:
    with open("own", "w") as file:
        file.write("x")
    os.link("own", VICTIM["job"] + "/own")
    return "linked"


@attempt
def t32_run_later() -> str:
    crontab = shutil.which("crontab")
    return run("sh", "-c", "echo '* * * * * id' | crontab -") if crontab else ""


@attempt
def t33_34_sockets_of_sessions_and_docker() -> str:
    return ", ".join(os.listdir("/run") + glob.glob("/run/user/*") + glob.glob("/var/run/*.sock"))


@attempt
def t35_the_agent_and_its_records() -> str:
    root = VICTIM["root"]
    there = [
        name
        for name in ("records", "blobs", "agent", "snapshots")
        if os.path.exists(root + "/" + name)
    ]
    return ", ".join(there + glob.glob("/tmp/towline*") + glob.glob("/dev/shm/towline*"))


@attempt
def t37_files_that_were_left_open() -> str:
    return ", ".join(name for name in os.listdir("/proc/self/fd") if int(name) > 3)


@attempt
def t38_the_name_of_the_machine() -> str:
    return call(libc.sethostname(b"evil", 4))


@attempt
def t40_more_than_its_limits() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard + 1))
    return "raised"


@attempt
def t40b_core_dumps() -> str:
    resource.setrlimit(resource.RLIMIT_CORE, (1000, 1000))
    return "raised"


@attempt
def t41_never_killed_for_want_of_memory() -> str:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-500")
    return "written"


@attempt
def t42_its_own_end() -> str:
    job = os.environ["JOB_DIR"]
    folders = (job, VICTIM["root"] + "/records/" + os.path.basename(job))
    names = ("exit", "life", "stop", "go", "mark", "out")
    return write(*(folder + "/" + name for folder in folders for name in names))


@attempt
def t43_all_memory_for_files() -> str:
    facts = os.statvfs("/tmp")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "" if facts.f_blocks * facts.f_frsize <= memory // 3 else "no bound"


@attempt
def t44_raw_packets() -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return "opened"


@attempt
def t45_fuse() -> str:
    return str(os.open("/dev/fuse", os.O_RDWR))


@attempt
def t50_loopback_of_the_machine_by_the_gateway() -> str:
    for address in ("10.0.2.2", "10.0.2.3", "169.254.1.1"):
        try:
            socket.create_connection((address, VICTIM["port"]), 1)
            return "connected by " + address
        except OSError:
            pass
    return ""


@attempt
def rights_are_none() -> str:
    status = open("/proc/self/status").read()
    lines = [line.split() for line in status.splitlines()]
    facts = {words[0]: words[1] for words in lines if len(words) > 1}
    lacking = [name for name in ("CapEff:", "CapPrm:", "CapBnd:") if int(facts[name], 16)]
    return ", ".join(lacking + ([] if facts["NoNewPrivs:"] == "1" else ["NoNewPrivs"]))


def main() -> None:
    signal.alarm(120)
    found = {}
    for function in TRIES:
        try:
            found[function.__name__] = function()
        except (OSError, ValueError) as problem:
            if getattr(problem, "errno", None) == errno.EPROTO:
                raise
            found[function.__name__] = ""
    sys.stdout.write(json.dumps(found) + "\n")


main()
