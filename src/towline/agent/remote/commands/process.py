"""Start a command as its own session, with nothing of ours in it."""

import errno
import os
import signal

from ..machine import read_text
from . import plain_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping

    from ..typed import Environ

DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
SIGNALS = [number for number in range(1, signal.NSIG) if number not in (9, 19, 32, 33)]
#: Too many processes or files, no memory, or the program is just being written.
NOT_NOW = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)
CAN_SPAWN = hasattr(os, "posix_spawn")

#: First, where a login there gives more than we have, a shell becomes one that logged in. What
#: profiles print is nobody's output; the mark tells of one that ends the shell.
AT_LOGIN = """\
exec 8>&1 9>&2 > /dev/null 2>&1
echo profile > "$TOWLINE_MARK"
export TOWLINE_PWD="$PWD"
exec "$BASH" --login -c "$0" bash "$@"
"""
#: What the job itself was given wins over profiles, and they do not move it to another folder.
AFTER_LOGIN = """\
exec 1>&8 2>&9 8>&- 9>&-
: > "$TOWLINE_MARK"
while IFS= read -r -d '' __towline_line; do
  case " $TOWLINE_GIVEN " in *" ${__towline_line%%=*} "*)
    export "$__towline_line" 2> /dev/null ;;
  esac
done < /proc/$$/environ
cd -- "$TOWLINE_PWD"; unset OLDPWD TOWLINE_PWD __towline_line
"""
#: Setup runs without positional parameters (`source activate` would take ours for its own).
#: The mark tells a failed setup or an unknown command from a command with the same exit code.
IN_BASH = """\
__towline_argv=("$@"); set --
trap 'c=$?; echo setup > "$TOWLINE_MARK"; exit $c' EXIT
eval "$TOWLINE_SETUP"
__towline_code=$?; [ $__towline_code = 0 ] || exit $__towline_code
trap - EXIT
type -- "${__towline_argv[0]}" > /dev/null 2>&1 || { echo not_found > "$TOWLINE_MARK"; exit 127; }
unset TOWLINE_SETUP TOWLINE_MARK TOWLINE_GIVEN
exec "${__towline_argv[@]}"
"""
IN_SH = """\
trap 'c=$?; echo setup > "$TOWLINE_MARK"; exit $c' EXIT
__towline_setup() { eval "$TOWLINE_SETUP"; }
__towline_setup
__towline_code=$?; [ $__towline_code = 0 ] || exit $__towline_code
trap - EXIT
type "$1" > /dev/null 2>&1 || { echo not_found > "$TOWLINE_MARK"; exit 127; }
unset TOWLINE_SETUP TOWLINE_MARK TOWLINE_GIVEN
exec "$@"
"""
#: Variables of ours while a set-up runs; no command sees them.
HIDDEN = (b"TOWLINE_SETUP", b"TOWLINE_MARK", b"TOWLINE_GIVEN", b"TOWLINE_PWD")


#: An interactive shell without a terminal: neither its complaint of that nor what ~/.bashrc prints
#: is output, and the line runs in a subshell, which hears the signals that the shell ignores.
WITHOUT_TERMINAL = """\
exec 8>&1 9>&2 > /dev/null 2>&1
exec bash -i -c 'exec 1>&8 2>&9 8>&- 9>&-; (eval "$0")' "$0"
"""
INTERACTIVE = [b"bash", b"-i", b"-c"]
#: What people have in an environment of their own; with what else it may be called.
OFTEN_IN_AN_ENVIRONMENT = {
    "python": "python3",
    "pip": "pip3",
    "conda": "",
    "mamba": "",
    "accelerate": "",
    "torchrun": "",
    "deepspeed": "",
    "ipython": "ipython3",
    "jupyter": "",
}


class CannotStart(Exception):
    """The command could not be started; `cause` and `code` go into the ending."""

    def __init__(self, cause: str, code: "int | None", text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.code = code
        self.text = text


def without_terminal(argv: "list[bytes]") -> "list[bytes]":
    """The same command; a line for an interactive bash so that it shows only what it says."""
    if argv[-4:-1] != INTERACTIVE:
        return argv
    return argv[:-4] + [b"bash", b"--norc", b"-c", WITHOUT_TERMINAL.encode(), argv[-1]]


class NotNow(CannotStart):
    """Nothing is wrong with the command: the machine cannot start any just now."""

    def __init__(self, problem: "OSError") -> None:
        super().__init__("void", None, "nothing starts here just now: %s" % problem.strerror)


def with_setup(
    argv: "list[bytes]",
    setup: bytes,
    mark: bytes,
    environ: "Environ",
    given: "Iterable[bytes] | None" = None,
) -> "list[bytes]":
    """The command line that runs `setup` in a shell first, then becomes `argv`.

    The shell is one that logged in, unless `given` is None; else that names the variables which
    no profile changes.
    """
    environ[b"TOWLINE_SETUP"] = setup
    environ[b"TOWLINE_MARK"] = mark
    for shell in (b"/bin/bash", b"/usr/bin/bash", b"/usr/local/bin/bash"):
        if not os.path.exists(shell):
            continue
        plain = [shell, b"--noprofile", b"--norc", b"-c"]
        if given is None:
            return plain + [IN_BASH.encode(), b"bash"] + argv
        environ[b"TOWLINE_GIVEN"] = b" ".join(given)
        return plain + [AT_LOGIN.encode(), (AFTER_LOGIN + IN_BASH).encode()] + argv
    return [b"/bin/sh", b"-c", IN_SH.encode(), b"sh"] + argv


def find_command(word: bytes, environ: "Mapping[bytes, bytes]") -> bytes:
    """The file to run, looked up in the job's own PATH, relative to the present folder."""
    if b"/" in word:
        places = [word]
    else:
        path = environ.get(b"PATH") or DEFAULT_PATH
        places = [(folder or b".") + b"/" + word for folder in path.split(b":")]
    for place in places:
        if os.access(place, os.X_OK) and not os.path.isdir(place):
            return place
    for place in places:
        if word and os.path.exists(place):
            raise CannotStart("not_executable", 126, not_executable(place))
    raise CannotStart("not_found", 127, not_found(word, places))


def not_found(word: bytes, places: "Iterable[bytes]" = ()) -> str:
    """What was looked for in vain, and on further lines what to do about it."""
    name = word.decode("utf-8", "replace")
    text = "command not found: %s" % name
    if " " in name:
        text += "\nto run a shell line: tow run -- sh -c %s" % quoted(name)
    elif name in OFTEN_IN_AN_ENVIRONMENT:
        known = OFTEN_IN_AN_ENVIRONMENT[name]
        if known and any(os.access(place + b"3", os.X_OK) for place in places):
            text += "\n%s is there" % known
        text += (
            "\nif it belongs to an environment, say which: --setup 'source ENV/bin/activate'"
            "\nor, with conda: --setup 'source ~/miniconda3/bin/activate ENV'"
        )
    return text


def not_executable(place: bytes) -> str:
    name = place.decode("utf-8", "replace")
    if os.path.isdir(place):
        return "cannot run a folder: %s" % name
    return "not executable: %s\nto make it so: chmod +x %s" % (name, name)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def start(argv: "list[bytes]", environ: "Environ", stdin: int, stdout: int, stderr: int) -> int:
    """The pid of the started command; raises CannotStart."""
    if any(b"\0" in word for word in argv) or b"\0" in b"".join(environ.values()):
        raise CannotStart("not_executable", 126, "an argument or variable contains a NUL byte")
    words = plain_line.words_of(argv, environ)
    if words is not None:
        try:
            place = find_command(words[0], environ)
            changed = plain_line.environ_of(place, environ)
            return launch(place, words, changed, stdin, stdout, stderr)
        except (OSError, CannotStart):
            pass  # bash says best what is wrong with it, or knows what to do
    place = find_command(argv[0], environ)
    try:
        try:
            return launch(place, argv, environ, stdin, stdout, stderr)
        except OSError as problem:
            if problem.errno != errno.ENOEXEC:
                raise
        return launch(b"/bin/sh", [b"sh", place] + argv[1:], environ, stdin, stdout, stderr)
    except OSError as problem:
        raise why_not(problem, place) from None


def why_not(problem: "OSError", place: bytes) -> "CannotStart":
    if problem.errno in NOT_NOW:
        return NotNow(problem)
    name = place.decode("utf-8", "replace")
    if problem.errno == errno.ENOENT:
        first = read_text(place).split("\n", 1)[0][:200]
        return CannotStart(
            "not_found", 127, "the interpreter of %s was not found: %s" % (name, first)
        )
    return CannotStart("not_executable", 126, "cannot run %s: %s" % (name, problem.strerror))


def launch(
    place: bytes, argv: "list[bytes]", environ: "Environ", stdin: int, stdout: int, stderr: int
) -> int:
    if CAN_SPAWN:
        try:
            return os.posix_spawn(
                place,
                argv,
                environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, stderr, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=SIGNALS,
            )
        except NotImplementedError:
            pass  # a C library without POSIX_SPAWN_SETSID
    return fork_and_exec(place, argv, environ, stdin, stdout, stderr)


def fork_and_exec(
    place: bytes, argv: "list[bytes]", environ: "Environ", stdin: int, stdout: int, stderr: int
) -> int:
    """As posix_spawn does: a failed exec is raised here, in the parent."""
    told, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if pid == 0:
        try:
            become(place, argv, environ, stdin, stdout, stderr)
        except OSError as problem:
            os.write(tell, b"%d" % (problem.errno or errno.EIO))
        finally:
            os._exit(127)
    os.close(tell)
    try:
        number = os.read(told, 16)
    finally:
        os.close(told)
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)))
    return pid


def become(
    place: bytes, argv: "list[bytes]", environ: "Environ", stdin: int, stdout: int, stderr: int
) -> None:
    os.setsid()
    forget_signals()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.execve(place, argv, environ)


def forget_signals() -> None:
    """Hear all of them again, as a program expects that is just being started."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def close_all_but(keep: int) -> None:
    """In a child that goes on without exec: nothing of its parent's stays open but `keep`."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != keep:
            try:
                os.close(fd)
            except OSError:
                pass
