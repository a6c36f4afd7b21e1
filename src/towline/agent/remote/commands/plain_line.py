"""Lines for bash that are nothing but a program and its arguments: they are run without bash.

For such a line bash would only split it at the blanks and become the program. To start it just for
that costs as much as everything else that is done for a short job.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Environ

#: Words in which nothing means anything to bash. Of the first, `=` would make an assignment.
LINE = re.compile(rb"[A-Za-z0-9_./:,@%+-]+([ \t]+[A-Za-z0-9_./:,@%+=-]+)*\Z")
#: With any of these in its environment, bash may do something else.
TELLING = (b"BASH_ENV", b"SHELLOPTS", b"BASHOPTS", b"POSIXLY_CORRECT", b"BASH_COMPAT")
FUNCTION = b"BASH_FUNC_"
#: What bash does itself, or reads as part of its language.
OWN = frozenset(
    b". : alias bg bind break builtin caller case cd command compgen complete compopt continue"
    b" coproc declare dirs disown do done elif else enable esac eval exec exit export fc fg fi for"
    b" function getopts hash help history if in jobs kill let local logout mapfile popd printf"
    b" pushd pwd read readarray readonly return select set shift shopt source suspend test then"
    b" time times trap type typeset ulimit umask unalias unset until wait while".split()
)


def words_of(argv: "list[bytes]", environ: "Environ") -> "list[bytes] | None":
    """The program and its arguments, where `argv` has bash run no more than that; None if more."""
    if len(argv) != 3 or argv[0] != b"bash" or argv[1] != b"-c":
        return None
    if not LINE.match(argv[2]) or any(name in environ for name in TELLING):
        return None
    words = argv[2].split()
    # The `echo` of bash and the program differ in their options.
    if words[0] in OWN or (words[0] == b"echo" and any(word[:1] == b"-" for word in words[1:])):
        return None
    return None if FUNCTION in b" ".join(environ) else words


def environ_of(place: bytes, environ: "Environ") -> "Environ":
    """The variables as bash would pass them on."""
    changed = dict(environ)
    changed[b"_"] = place
    changed.setdefault(b"SHLVL", b"0")
    return changed
