"""Tokens: sign in on a machine, see where one is signed in, sign out."""

from msgspec import Struct

from towline.api.places import Nothing
from towline.api.team import NewToken, TokenList
from towline.errors import Forbidden
from towline.server.endpoints import Call, Endpoint, delete, get, post
from towline.server.routes.team.accounts import account_view

#: In place of an id: the token that the request comes with.
_THIS = "this"


class SignIn(Struct, forbid_unknown_fields=True):
    name: str
    password: str
    #: What people will know the token by.
    machine: str = ""

    def __repr__(self) -> str:
        return f"SignIn({self.name!r})"


class TokenQuery(Struct):
    #: Whose; an administrator may ask for anybody's.
    account: str = ""


@post("/v1/tokens")
async def sign_in(call: Call, body: SignIn) -> NewToken:
    """A token for this machine, in exchange for a password."""
    team = call.team
    call.note(account=body.name[:100])
    team.count_guess(body.name[:100], call.address)
    secret, token, account = await team.accounts.sign_in(body.name, body.password, body.machine)
    team.forgive(body.name, call.address)
    return {
        "token": secret,
        "id": token.id,
        "expires": token.expires,
        "account": account_view(call, account),
    }


@get("/v1/tokens")
async def list_tokens(call: Call, query: TokenQuery) -> TokenList:
    """Where one is signed in."""
    account = query.account or call.who.name
    if not call.who.owns(account):
        raise Forbidden(f"{account} is somebody else's account")
    found = call.team.accounts.tokens.of(account)
    return {
        "tokens": [
            {
                "id": token.id,
                "machine": token.machine,
                "created": token.created,
                "expires": token.expires,
                "used": token.used,
                "this": token.id == call.token,
            }
            for token in found
        ]
    }


@delete("/v1/tokens/{token:str}")
async def sign_out(call: Call, token: str) -> Nothing:
    """End a token: one's own, or as an administrator anybody's."""
    meant = call.token if token == _THIS else token
    await call.team.accounts.end_token(meant, call.who.sees)
    return {}


ENDPOINTS: list[Endpoint] = [sign_in, list_tokens, sign_out]
