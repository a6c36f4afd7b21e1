"""What can be done with accounts: register, sign in, change, and be recognised by a token."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from towline.engine.engine import Engine
from towline.errors import Exists, Forbidden, NotFound, SignInWanted, UsageError, WrongPassword
from towline.model.principal import Account, AccountState, Principal, Token, check_group, check_name
from towline.model.team.data import DataDomain, DomainKind
from towline.server.team.passwords import Passwords, digest_of, new_secret
from towline.server.team.settings import Registration, TeamSettings

_DAY_S = 86400.0
#: When a token was last used is known this exactly.
_USED_S = 3600.0
_LONGEST_TEXT = 200


class Accounts:
    """The accounts of a team's server; whoever changes one of them comes through here."""

    def __init__(self, engine: Engine, settings: TeamSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._passwords = Passwords()
        self._clock = engine.clock
        self.rows = engine.store.accounts
        self.tokens = engine.store.tokens
        #: Called when somebody may use more or less than before.
        self.on_rights_changed: list[Callable[[], None]] = []
        #: Called with what an account or a group had that is removed.
        self.on_removed: Callable[[DataDomain], None] = lambda _: None

    # --- who asks ----------------------------------------------------------------------------

    def recognise(self, secret: str) -> tuple[Principal, Token]:
        """Who has this token; SignInWanted if nobody has."""
        digest, now = digest_of(secret), self._clock()
        token = self.tokens.find(digest)
        if token is None or token.expires <= now:
            raise SignInWanted("the token is not valid (any more)", "sign in again")
        account = self.rows.find(token.account)
        if account is None or account.state is not AccountState.ACTIVE:
            raise SignInWanted(f"the account {token.account} cannot be used")
        if now - token.used > _USED_S:
            self._engine.soon("when a token was used", lambda: self.tokens.note_use(digest, now))
        return self.principal(account), token

    def principal(self, account: Account) -> Principal:
        return Principal(
            account.name,
            self.rows.groups_of(account.name),
            account.administrator,
            hears_of_others=not self._settings.private_status,
        )

    async def sign_in(self, name: str, password: str, machine: str) -> tuple[str, Token, Account]:
        """A new token; unknown names and wrong passwords are told and timed alike."""
        account = self.rows.find(name)
        known = account.password if account and account.state is not AccountState.DELETED else ""
        if not await self._passwords.matches(known, password) or account is None:
            raise WrongPassword("there is no such account, or its password is another one")
        if account.state is not AccountState.ACTIVE:
            raise Forbidden(f"the account {name} waits for an administrator to agree to it")
        secret, now = new_secret(), self._clock()
        digest = digest_of(secret)
        expires = now + self._settings.token_days * _DAY_S
        shown = "".join(filter(str.isprintable, machine))[:_LONGEST_TEXT]
        token = Token(digest.hex()[:12], name, shown, now, expires, now)
        await self._engine.in_turn(lambda: self.tokens.add(digest, token))
        return secret, token, account

    async def verify(self, name: str, password: str) -> None:
        """Make sure that it is really them."""
        account = self.rows.find(name)
        if account is None or not await self._passwords.matches(account.password, password):
            raise WrongPassword("the password given as `verification` is not yours")

    # --- accounts ----------------------------------------------------------------------------

    async def register(
        self, account: Account, password: str, invitation: str, by: Principal
    ) -> Account:
        """Make an account, as the settings allow it to whoever asks."""
        check_name(account.name)
        for text in (account.fullname, account.email):
            _check_text(text)
        way, digest = self._settings.registration, b""
        state = AccountState.ACTIVE
        if by.administrator:
            pass
        elif way is Registration.INVITATION:
            if not invitation:
                raise Forbidden(
                    "this server takes new members by invitation only",
                    "ask an administrator for one: tow server invite",
                )
            digest = digest_of(invitation)
        elif way is Registration.APPROVAL:
            state = AccountState.PENDING
        known = self.rows.find(account.name)
        if known is not None and not (by.administrator and known.state is AccountState.DELETED):
            raise Exists(f"there is an account {account.name} already")
        made = replace(
            account,
            password=await self._passwords.hashed(password),
            state=state,
            created=self._clock(),
            administrator=account.administrator and by.administrator,
        )
        again = by.administrator
        await self._engine.in_turn(lambda: self.rows.add(made, digest, again))
        return made

    def find(self, name: str, who: Principal) -> Account:
        """An account that somebody may look at: their own, or any for an administrator."""
        if not who.owns(name):
            raise Forbidden(f"{name} is somebody else's account")
        found = self.rows.find(name)
        if found is None or found.state is AccountState.DELETED:
            raise NotFound(f"there is no account {name}")
        return found

    async def change(
        self, name: str, edit: Callable[[Account], Account], password: str = ""
    ) -> Account:
        """Replace an account by what is made of it, and its password."""
        hashed = await self._passwords.hashed(password) if password else ""

        def whole(account: Account) -> Account:
            after = edit(account)
            return replace(after, password=hashed) if hashed else after

        changed = await self._engine.in_turn(lambda: self.rows.change(name, whole))
        self._rights_changed()
        return changed

    async def remove(self, name: str) -> None:
        await self.change(
            name, lambda one: replace(one, state=AccountState.DELETED, password="", autoshare=())
        )
        await asyncio.to_thread(self.on_removed, DataDomain(DomainKind.USER, name))

    async def end_tokens(self, account: str, but: str) -> None:
        """End all of an account's tokens but one."""
        await self._engine.in_turn(lambda: self.tokens.forget_all(account, but))

    async def end_token(self, token_id: str, account: str) -> None:
        await self._engine.in_turn(lambda: self.tokens.forget(token_id, account))

    # --- groups ------------------------------------------------------------------------------

    async def add_group(self, group: str, title: str) -> None:
        check_group(group)
        _check_text(title)
        await self._engine.in_turn(lambda: self.rows.add_group(group, title))

    async def retitle_group(self, group: str, title: str) -> None:
        _check_text(title)
        await self._engine.in_turn(lambda: self.rows.change_group(group, title))

    async def remove_group(self, group: str) -> None:
        shares = self._engine.store.shares
        self.rows.title_of(group)
        # First what is shared: a group of this name made later must not find any of it.
        await self._engine.in_turn(lambda: shares.forget_group(group))
        await self._engine.in_turn(lambda: self.rows.forget_group(group))
        await asyncio.to_thread(self.on_removed, DataDomain(DomainKind.GROUP, group))
        self._rights_changed()

    async def join(self, name: str, group: str) -> None:
        await self._engine.in_turn(lambda: self.rows.add_member(group, name))
        self._rights_changed()

    async def leave(self, name: str, group: str) -> None:
        """Take somebody out of a group; what they share by themselves goes along."""
        await self._engine.in_turn(lambda: self.rows.forget_member(group, name))

        def without(account: Account) -> Account:
            left = tuple(one for one in account.autoshare if one != group)
            return replace(account, autoshare=left)

        await self._engine.in_turn(lambda: self.rows.change(name, without))
        self._rights_changed()

    def autoshared(self, owner: str) -> tuple[str, ...]:
        """The groups that new jobs of somebody are shared with."""
        account = self.rows.find(owner)
        groups = self.rows.groups_of(owner)
        return tuple(one for one in account.autoshare if one in groups) if account else ()

    def _rights_changed(self) -> None:
        for hear in self.on_rights_changed:
            hear()


def _check_text(text: str) -> None:
    if len(text) > _LONGEST_TEXT or not all(c.isprintable() for c in text):
        raise UsageError(f"a name, an address or a title has at most {_LONGEST_TEXT} letters")
