"""Options that do not exist, and what may have been meant."""

from __future__ import annotations

from difflib import get_close_matches

from towline.model.sbatch_words import in_our_words, option_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Words of other tools for what is called otherwise here.
CALLED_OTHERWISE = {
    "--gpu": "--gpus",
    "--num-gpus": "--gpus",
    "--cpu": "--cpus",
    "--num-cpus": "--cpus",
    "--memory": "--mem",
    "--name": "--title",
    "--wall-time": "--time",
    "--walltime": "--time",
    "--timeout": "--time",
    "--detached": "--detach",
    "--background": "--detach",
    "--interactive": "",
    "--lines": "--tail",
    "--watch": "--follow",
    "--state": "",
}


def meant_instead(word: str, behind: Sequence[str], known: Iterable[str]) -> str:
    """What to type instead of an option, behind which that stands; empty when nobody knows."""
    flag, _, value = word.partition("=")
    names = [name for name in known if name.startswith("--")]
    other = CALLED_OTHERWISE.get(flag)
    if other and other in names:
        return f"did you mean {other}?"
    if "--option" in names and (name := option_of(flag)):
        value = value or (flag[2:] if not flag.startswith("--") else "")
        value = value or next((word for word in behind[:1] if not word.startswith("-")), "")
        return _of_sbatch(name, value)
    close = get_close_matches(flag, names, n=1)
    return f"did you mean {close[0]}?" if close else ""


def _of_sbatch(name: str, value: str) -> str:
    import shlex

    ours = in_our_words(name, value or "VALUE")
    return f"for sbatch's --{name}: {shlex.join(ours)}" if ours else "Towline sees to it by itself"
