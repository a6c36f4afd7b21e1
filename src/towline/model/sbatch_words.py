"""Options of sbatch as people type them. Import-light: commands use it when one is mistyped."""

from __future__ import annotations

#: What one letter stands for.
LETTERS = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition",
    "q": "qos", "Q": "quiet", "s": "oversubscribe", "S": "core-spec", "t": "time",
    "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
#: Further options that jobs are often given.
OTHERS = (
    "cpus-per-gpu", "deadline", "exclusive", "gpus-per-node", "gpus-per-task", "gres",
    "mail-type", "mail-user", "mem", "mem-per-cpu", "mem-per-gpu", "mincpus", "nice",
    "ntasks-per-node", "reservation", "switches", "threads-per-core", "tmp", "wckey",
)  # fmt: skip
#: What Towline sees to by itself.
NEEDLESS = ("array", "chdir", "error", "export", "input", "output", "quiet", "verbose", "wait")


def option_of(flag: str) -> str:
    """The long name of an option of sbatch; empty when it is none."""
    name = flag.lstrip("-")
    if flag.startswith("--"):
        return name if name in OTHERS or name in LETTERS.values() else ""
    return LETTERS.get(name[:1], "") if name else ""


def in_our_words(name: str, value: str) -> list[str]:
    """An option of sbatch as `tow run` takes it; nothing when Towline sees to it by itself."""
    if name in NEEDLESS:
        return []
    if name in ("ntasks", "nodes") and value.isdecimal():
        return ["-r", f"{value}:[]"] if int(value) > 1 else []
    if name in ("gpus", "gpus-per-node", "gres"):
        gpus = value.removeprefix("gpu:") if name == "gres" else value
        kind, _, count = gpus.rpartition(":")
        return ["--gpus", f"{count}:{kind}" if kind and count.isdecimal() else gpus]
    ours = {"cpus-per-task": "--cpus", "mem": "--mem", "job-name": "-t"}
    if name in ours and value:
        return [ours[name], value]
    if name == "time" and value:
        # To sbatch, a bare number is minutes.
        return ["--time", f"{value}m" if value.isdecimal() else value]
    if name == "requeue":
        return ["--requeue"]
    return ["-o", f"{name}={value}" if value else name]


def directives(text: str) -> list[tuple[str, str]]:
    """What the `#SBATCH` lines of a script ask for; they stand before its first command."""
    found = []
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            found += _options(line.removeprefix("#SBATCH").partition(" #")[0].split())
        elif line.strip() and not line.startswith("#"):
            break
    return found


def _options(words: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found.append((name, value))
        elif word.startswith("-") and len(word) > 1 and word[1] in LETTERS:
            found.append((LETTERS[word[1]], word[2:].removeprefix("=")))
        elif found and not found[-1][1]:
            found[-1] = (found[-1][0], word)
    return found
