"""First use, and whatever else is asked: names, addresses, passwords, in the seed's words."""

from __future__ import annotations

import re

from towline.cli.pit.failures import Failed, Leave, PitUsage
from towline.cli.pit.files import USER, UserInfo, keep_user_info
from towline.cli.pit.typed.prompting import ask, ask_hidden, ask_until, tell
from towline.errors import TowlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

NO_USER_INFO = "No user info found. Seems like a new user or first time login from this machine."
_MAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)*")
_PASSWORD = re.compile(r"[!-~]{12,24}")
_RULE = "It can include: !...~\nAnd the length must be: 12...24"
_DIFFERS = "It differs from first one. Hit only the Enter key if you want to retry from first one."
#: What the server says where a name or password is wrong, and where one has to log in first.
_WRONG = ("wrong_password", "sign_in")


def first_use(session: Session) -> UserInfo:
    """Register or log in, and keep a token for this machine."""
    tell(NO_USER_INFO)
    name = ask_until("Please enter an existing or new username: ")
    if session.call("GET", f"/v1/accounts/{_in_path(name)}/exists")["exists"]:
        tell("The user already exists.")
        password = ask_hidden("Please enter password (or Ctrl-C to abort): ")
    else:
        password = _register(session, name)
    return log_in(session, name, password)


def _register(session: Session, name: str) -> str:
    tell("Found no user of that name.")
    if not yes("Do you want to register this usename (yes|no)? "):
        raise Leave
    rule = session.call("GET", "/v1/hello").get("registration")
    account = {"name": name, "fullname": ask_until("Full name: "), "email": ask_mail()}
    if rule == "invitation":
        account["invitation"] = ask_until("Invitation: ")
    account["password"] = new_password()
    try:
        made = session.call("POST", "/v1/accounts", account)
    except TowlineError as error:
        more = "\n".join(filter(None, (error.text, error.hint)))
        raise PitUsage("Unable to register user.", more) from None
    if made.get("state") == "pending":
        tell("An administrator has to approve this account before you can use it.")
        raise Leave
    password: str = account["password"]
    return password


def log_in(session: Session, name: str, password: str, file: str = "") -> UserInfo:
    """Exchange a password for a token of this machine, and keep that."""
    import socket

    body = {"name": name, "password": password, "machine": socket.gethostname()}
    try:
        token = session.call("POST", "/v1/tokens", body)["token"]
    except TowlineError as error:
        if error.code not in _WRONG:
            raise
        raise PitUsage(
            f'Unable to authenticate. If user "{name}" is not valid anymore, remove "{USER}" '
            "from this directory or your home folder and start over."
        ) from None
    return keep_user_info(name, token, file)


def log_in_again(session: Session, info: UserInfo) -> UserInfo:
    """Its token has expired: the password gives another one."""
    return log_in(session, info.name, ask_hidden("Please enter password: "), info.file)


def yes(question: str) -> bool:
    while True:
        answer = ask_until(question).lower()
        if answer in ("y", "yes", "n", "no"):
            return answer in ("y", "yes")


def ask_mail() -> str:
    while not _MAIL.fullmatch(address := ask_until("E-Mail address: ")):
        tell("Input valid e-mail address, please.")
    return address


def new_password() -> str:
    """A password that was typed twice; an empty repeat begins anew."""
    while True:
        password = ask_hidden("New password: ")
        if not _PASSWORD.fullmatch(password):
            tell(_RULE)
            continue
        while again := ask_hidden("Reinput a same one to confirm it: "):
            if again == password:
                return password
            tell(_DIFFERS)


def own_password() -> str:
    return ask_hidden("Own password for verification: ")


def missing_of_user(properties: dict[str, Any]) -> dict[str, Any]:
    """What a new account needs, asked for where it is not given."""
    questions = {
        "fullname": lambda: ask_until("Full name: "),
        "email": ask_mail,
        "password": new_password,
    }
    return {**properties, **_answers(questions, properties)}


def missing_of_node(properties: dict[str, Any]) -> dict[str, Any]:
    return {**properties, **_answers({"endpoint": lambda: ask_until("SSH endpoint: ")}, properties)}


def missing_of_alias(properties: dict[str, Any]) -> dict[str, Any]:
    question = {"name": lambda: ask_until("Exact resource name: ")}
    return {**properties, **_answers(question, properties)}


def missing_of_group(properties: dict[str, Any]) -> dict[str, Any]:
    return {**properties, **_answers({"title": lambda: ask("Group title: ")}, properties)}


def _answers(questions: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: question() for name, question in questions.items() if name not in given}


def _in_path(name: str) -> str:
    """A name as part of an address; what can be none is refused before it is sent."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,31}", name):
        raise Failed(
            "Wrong user id format", "small letters and digits, the first one a letter: anna7"
        )
    return name
