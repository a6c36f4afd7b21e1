"""A session with the server that `.pitconnect.txt` names, as whoever `.pituser.txt` says."""

from __future__ import annotations

from towline.cli.pit import files
from towline.client.remote import RemoteSession


class PitSession(RemoteSession):
    """Asks for what is missing to be let in; then the request is sent again by itself."""

    def __init__(self) -> None:
        self._where = files.connection()
        self._info = files.user_info()
        token = self._info.token if self._info else ""
        super().__init__(
            self._where.url, self._where.certificate, token, on_sign_in=self._signed_in
        )

    @property
    def name(self) -> str:
        """Who one is here; asked for where that is not known yet."""
        if self._info is None:
            self.token = self._signed_in()
        assert self._info is not None
        return self._info.name

    def _signed_in(self) -> str:
        from towline.cli.pit.typed import dialogue

        nobody = RemoteSession(self._where.url, self._where.certificate)
        if self._info is None:
            self._info = dialogue.first_use(nobody)
        else:
            self._info = dialogue.log_in_again(nobody, self._info)
        return self._info.token
