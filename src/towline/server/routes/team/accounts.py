"""Accounts: register, look, change, remove."""

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from towline.api.places import Nothing
from towline.api.team import AccountList, AccountView, ExistsView
from towline.errors import Forbidden, SignInWanted, UsageError
from towline.model.principal import NOBODY, Account, AccountState
from towline.server.endpoints import Call, Endpoint, delete, get, patch, post, put

#: In place of a name: whoever asks.
_SELF = "~"


class NewAccount(Struct, forbid_unknown_fields=True):
    name: str
    password: str
    fullname: str = ""
    email: str = ""
    #: The code of an invitation, where the server takes members by that.
    invitation: str = ""
    #: An administrator may make another one.
    administrator: bool = False

    def __repr__(self) -> str:
        return f"NewAccount({self.name!r})"


class AccountChange(Struct, forbid_unknown_fields=True):
    fullname: str | UnsetType = UNSET
    email: str | UnsetType = UNSET
    password: str | UnsetType = UNSET
    autoshare: list[str] | UnsetType = UNSET
    administrator: bool | UnsetType = UNSET
    state: AccountState | UnsetType = UNSET
    #: The password of whoever asks, for what matters most.
    verification: str = ""

    def __repr__(self) -> str:
        return "AccountChange()"


def account_view(call: Call, account: Account) -> AccountView:
    return {
        "name": account.name,
        "fullname": account.fullname,
        "email": account.email,
        "administrator": account.administrator,
        "state": account.state.value,
        "groups": sorted(call.team.accounts.rows.groups_of(account.name)),
        "autoshare": list(account.autoshare),
        "created": account.created,
    }


@get("/v1/accounts/{name:str}/exists")
async def exists(call: Call, name: str) -> ExistsView:
    """Whether there is an account of this name."""
    call.team.questions.take(call.address, call.team.now())
    return {"exists": call.team.accounts.rows.find(name) is not None}


@post("/v1/accounts")
async def register(call: Call, body: NewAccount) -> AccountView:
    """Make an account: one's own, as the server allows it, or as an administrator anybody's."""
    if call.who == NOBODY:
        if call.header("Authorization"):
            raise SignInWanted("the token is not valid (any more)", "sign in again")
        call.team.questions.take(call.address, call.team.now())
    elif not call.who.administrator:
        raise Forbidden(f"{call.who.name} has an account", "only an administrator makes others'")
    call.note(account=body.name[:100])
    new = Account(body.name, body.fullname, body.email, administrator=body.administrator)
    accounts = call.team.accounts
    made = await accounts.register(new, body.password, body.invitation, call.who)
    return account_view(call, made)


@get("/v1/accounts")
async def list_accounts(call: Call) -> AccountList:
    """All accounts."""
    found = call.team.accounts.rows.all()
    kept = (one for one in found if one.state is not AccountState.DELETED)
    return {"accounts": [account_view(call, one) for one in kept]}


def _meant(call: Call, name: str) -> Account:
    return call.team.accounts.find(call.who.name if name == _SELF else name, call.who)


@get("/v1/accounts/{name:str}")
async def show(call: Call, name: str) -> AccountView:
    """One's own account, or as an administrator anybody's."""
    return account_view(call, _meant(call, name))


@patch("/v1/accounts/{name:str}")
async def change(call: Call, name: str, body: AccountChange) -> AccountView:
    """Change an account; a new password, or rights, need the password of whoever asks."""
    accounts, account = call.team.accounts, _meant(call, name)
    given = {
        field: value
        for field in ("fullname", "email", "administrator", "state")
        if (value := getattr(body, field)) is not UNSET
    }
    call.note(account=account.name, fields=sorted(given))
    if {"administrator", "state"} & given.keys() and not call.who.administrator:
        raise Forbidden(f"{call.who.name} is not an administrator here", hint="ask one")
    if given.get("state") is AccountState.DELETED:
        raise UsageError("an account is removed with DELETE")
    if body.password is not UNSET or "administrator" in given:
        call.team.count_guess(call.who.name, call.address)
        await accounts.verify(call.who.name, body.verification)
        call.team.forgive(call.who.name, call.address)
    if body.autoshare is not UNSET:
        groups = accounts.rows.groups_of(account.name)
        if strange := [group for group in body.autoshare if group not in groups]:
            raise UsageError(f"{account.name} is not in the group {strange[0]}")
        given["autoshare"] = tuple(dict.fromkeys(body.autoshare))
    password = "" if body.password is UNSET else body.password
    if body.password is not UNSET and not password:
        raise UsageError("a password cannot be empty")
    changed = await accounts.change(account.name, lambda one: replace(one, **given), password)
    if password or given.get("state") is AccountState.PENDING:
        await accounts.end_tokens(account.name, but=call.token)
    return account_view(call, changed)


@delete("/v1/accounts/{name:str}")
async def remove(call: Call, name: str) -> Nothing:
    """End an account and its tokens; its jobs stay, and so its name stays taken."""
    account = _meant(call, name)
    call.note(account=account.name)
    await call.team.accounts.remove(account.name)
    return {}


@put("/v1/accounts/{name:str}/groups/{group:str}")
async def join(call: Call, name: str, group: str) -> AccountView:
    """Take somebody into a group."""
    account = _meant(call, name)
    await call.team.accounts.join(account.name, group)
    return account_view(call, _meant(call, name))


@delete("/v1/accounts/{name:str}/groups/{group:str}")
async def leave(call: Call, name: str, group: str) -> AccountView:
    """Take somebody out of a group."""
    account = _meant(call, name)
    call.team.accounts.rows.title_of(group)
    await call.team.accounts.leave(account.name, group)
    return account_view(call, _meant(call, name))


ENDPOINTS: list[Endpoint] = [
    exists,
    register,
    list_accounts,
    show,
    change,
    remove,
    join,
    leave,
]
