"""`tow completion`: what a shell needs to complete what is typed behind `tow`."""

from __future__ import annotations

import os

from towline.cli.options import Parser
from towline.cli.terminal import say, write

EXAMPLES = """
tow completion bash > ~/.local/share/bash-completion/completions/tow
tow completion zsh > ~/.zfunc/_tow
tow completion fish > ~/.config/fish/completions/tow.fish
"""
#: Nobody waits longer for a machine while he types.
PATIENCE_S = 10.0

BASH = r"""
_tow() {
  local how word rest
  COMPREPLY=()
  {
    read -r how
    while IFS=$'\t' read -r word rest; do COMPREPLY+=("$word"); done
  } < <(command tow completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case $how in
    here) compopt -o default -o bashdefault ;;
    paths)
      compopt -o filenames
      [[ ${COMPREPLY[*]} == */ ]] && compopt -o nospace
      ;;
    words)
      # The shell takes `=` for a word of its own.
      [[ ${COMP_WORDS[*]:COMP_CWORD-1:2} == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
      ;;
  esac
}
complete -F _tow tow
"""
ZSH = r"""
#compdef tow
_tow() {
  local -a found values folders
  local how line
  found=("${(@f)$(command tow completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  how=$found[1]
  for line in "${(@)found[2,-1]}"; do
    line=${line%%$'\t'*}
    if [[ $how == paths && $line == */ ]]; then folders+=("$line"); else values+=("$line"); fi
  done
  case $how in
    here) _files ;;
    *)
      (( $#values )) && compadd -- "${(@)values}"
      (( $#folders )) && compadd -S '' -- "${(@)folders}"
      ;;
  esac
}
if [ "$funcstack[1]" = "_tow" ]; then _tow "$@"; else compdef _tow tow; fi
"""
FISH = r"""
function __tow_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l found (command tow completion fish -- $before[2..-1] "$current" 2>/dev/null)
    if test "$found[1]" = here
        __fish_complete_path "$current"
    else
        printf '%s\n' $found[2..-1]
    end
end
complete -c tow -f -a '(__tow_complete)'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def parser() -> Parser:
    parser = Parser(
        "completion",
        "bash | zsh | fish",
        "Print what a shell needs to complete commands, options, jobs, clusters and the paths of\n"
        "a job's files behind `tow`.",
        EXAMPLES,
    )
    parser.add_argument("shell", choices=list(SHELLS), help="your shell")
    return parser


def main(args: list[str]) -> int:
    place = args.index("--") if "--" in args else len(args)
    options = parser().read(args[:place])
    if place == len(args):
        say(SHELLS[options.shell].strip())
        return 0
    words = args[place + 1 :]
    # fish has read all but the last.
    typed = words[-1:] if options.shell == "fish" else words
    _answer([*words[: len(words) - len(typed)], *map(_unquoted, typed)])
    return 0


def _answer(words: list[str]) -> None:
    """The shell's own question: which kind of words follow, and then each with what it is."""
    import signal

    from towline.cli.completing import candidates
    from towline.cli.terminal import printable

    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    found = candidates(words)
    lines = [f"{word}\t{printable(text)}" for word, text in found.words.items()]
    text = "".join(f"{line}\n" for line in [found.how, *lines])
    write(1, text.encode("utf-8", "surrogateescape"))


def _unquoted(word: str) -> str:
    """Shells hand words over as they were typed, also while a quote is open."""
    import shlex

    for closed in (word, f"{word}'", f'{word}"'):
        try:
            parts = shlex.split(closed)
        except ValueError:
            continue
        return parts[0] if len(parts) == 1 else word
    return word
