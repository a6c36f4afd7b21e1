"""The one exception that becomes an error reply."""


class Refusal(Exception):
    """A request the agent does not carry out; `code` is for programs, `text` for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    def as_reply(self) -> "dict[str, str]":
        return {"code": self.code, "text": self.text}
