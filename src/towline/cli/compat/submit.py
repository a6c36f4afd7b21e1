"""`submit -c cedar.json COMMAND`: a job on a Slurm, with TensorBoard, followed from here."""

from __future__ import annotations

from argparse import SUPPRESS

from towline.cli.compat.program import ProgramOptions
from towline.cli.compat.submit_file import Destination, option_texts, read_destination
from towline.cli.main import leave
from towline.cli.options import split_command
from towline.cli.session import open_session
from towline.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

VALUED = ("-c", "--config", "--sbatch_json", "--sbatch-json", "--patience")
#: How the switch is written with a value, as some are used to.
_SWITCHES = {
    f"--tensorboard={value}": switch
    for switch, values in {
        "--tensorboard": ("true", "yes", "1"),
        "--no-tensorboard": ("false", "no", "0"),
    }.items()
    for value in values
}
_JSON_HINT = """put it in single quotes: --sbatch_json='{"--mem": "20G"}'"""


def parser() -> ProgramOptions:
    parser = ProgramOptions(
        "submit",
        "Run a command as a job on a Slurm and follow it. The git repository goes along as it is "
        "now. Everything after the command's first word belongs to the command.",
        hint="submit -c cedar.json python main.py",
    )
    parser.usage = "submit -c FILE [options] COMMAND..."
    parser.allow_abbrev = False
    parser.add_argument(
        "-c",
        "--config",
        required=True,
        default=SUPPRESS,
        metavar="FILE",
        help="a file with the access node and options of sbatch, or the name of a cluster",
    )
    parser.add_argument(
        "--sbatch_json",
        "--sbatch-json",
        default="{}",
        metavar="JSON",
        help="options of sbatch that win over those of the file",
    )
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        default=True,
        help="run TensorBoard beside the job and make it reachable from here",
    )
    parser.add_argument(
        "--no-tensorboard",
        dest="tensorboard",
        action="store_false",
        default=SUPPRESS,
        help="no TensorBoard",
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=120,
        metavar="SECONDS",
        help="ask what to do when the network is away for so long",
    )
    return parser


def _seconds(text: str) -> float:
    from argparse import ArgumentTypeError

    from towline.errors import UsageError
    from towline.model.units import parse_duration_s

    try:
        return parse_duration_s(text)
    except UsageError as error:
        raise ArgumentTypeError(f"{error.text}; write it like 90 or 5m") from None


def command(args: list[str]) -> int:
    ours, words = split_command(_with_plain_switches(args), VALUED)
    asking = parser()
    options = asking.parse_args(ours)
    if not words:
        asking.error("which command? it stands at the end")
    destination = read_destination(options.config)
    given = read_options(options.sbatch_json)
    ask = _ask(words, destination, given)
    if options.tensorboard:
        ask["services"] = ["tensorboard"]
    session = open_session()
    ask["cluster"] = _cluster(session, destination, ask["cwd"])
    from towline.cli.compat.submit_follow import SubmitFollow
    from towline.client.submission import new_key, own_environment

    ask.pop("environ", None)
    ask.update(own_environment(ask["cluster"], ask["cwd"]))

    return SubmitFollow(session, ask, new_key(), options.patience).run()


def _with_plain_switches(args: list[str]) -> list[str]:
    """`--tensorboard=False` and `--tensorboard False` as `--no-tensorboard`."""
    ours, words = split_command(args, VALUED)
    if ours[-1:] == ["--tensorboard"] and words[:1] in (["True"], ["False"]):
        value = f"--tensorboard={words[0]}"
        return _with_plain_switches([*ours[:-1], value, *words[1:]])
    plain = [_SWITCHES.get(word.lower(), word) for word in ours]
    return [*plain, "--", *words] if words else plain


def read_options(text: str) -> dict[str, str]:
    """The options in `--sbatch_json`."""
    import json

    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--sbatch_json is not JSON: {error}", _JSON_HINT) from None
    if not isinstance(raw, dict):
        raise UsageError("--sbatch_json holds no options by name", _JSON_HINT)
    return option_texts(raw, "--sbatch_json: ")


def _ask(words: list[str], destination: Destination, given: dict[str, str]) -> dict[str, Any]:
    """What the Engine is asked to run; what is in the file wins over configured defaults."""
    from towline.cli.commands.run import job_ask
    from towline.cli.commands.run import parser as run_parser

    ask = job_ask(run_parser().read([]), words)
    check_options(destination.options, destination.where)
    check_options(given, "--sbatch_json: ")
    options = {**destination.options, **given}
    for typed in list(options):
        name = _plain(typed)
        if name == "requeue":
            ask["requeue"] = is_on(options.pop(typed))
        elif name == "signal":
            ask["signal"] = options.pop(typed)
        elif _says_nothing(name, options[typed]):
            del options[typed]
    ask["options"] = options
    # cluster_tools records what is not committed as a branch that `git branch` lists.
    ask["branch"] = True
    if destination.setup:
        ask["setup"] = destination.setup
    return ask


def check_options(options: dict[str, str], where: str) -> None:
    """Refuse what sbatch cannot be told by others than the Engine, before anything is done."""
    from towline.backends.slurm.options import option_names

    for typed, value in options.items():
        name = _plain(typed)
        if name in ("requeue", "signal") or _says_nothing(name, value):
            continue
        try:
            option_names({typed: value})
        except UsageError as error:
            raise UsageError(f"{where}{error.text}", 'options look like {"--mem": "16G"}') from None


def _plain(typed: str) -> str:
    return typed.lstrip("-").replace("_", "-")


def _says_nothing(name: str, value: str) -> bool:
    """What files often have, and what holds anyway."""
    return (name in ("ntasks", "n") and value == "1") or (name == "no-requeue" and is_on(value))


def is_on(value: str) -> bool:
    return value.lower() not in ("false", "no")


def _cluster(session: Session, destination: Destination, cwd: str) -> str:
    """The name that the Engine has for where the job goes."""
    from towline.client.transport import with_query

    if destination.host:
        ask = {"cwd": cwd, "kind": "slurm", "host": destination.host}
        if destination.folder:
            ask["folder"] = destination.folder
        name: str = session.call("POST", "/v1/clusters/behind", ask, repeat=True)["cluster"]
        return name
    known = session.call("GET", with_query("/v1/clusters", cwd=cwd))["clusters"]
    names = [cluster["name"] for cluster in known]
    if destination.cluster not in names:
        raise UsageError(
            f"there is no cluster {destination.cluster!r}",
            f"clusters: {', '.join(names)}; or name a file, such as cedar.json",
        )
    return destination.cluster


def main() -> None:
    leave("submit", command)


if __name__ == "__main__":
    main()
