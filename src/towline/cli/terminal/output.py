"""A job's output as it arrives: for people as it is, for programs as JSON lines."""

from __future__ import annotations

from towline.cli.terminal import interactive, note, say_json, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.terminal.travel import Travel

#: A line longer than this is shown in parts rather than held back.
LONGEST_LINE = 1 << 16
FD_OF = {"out": 1, "err": 2}


class Output:
    """The job's stdout on ours and its stderr on ours; lines of several processes with a prefix."""

    def __init__(self) -> None:
        #: (label, stream) -> the beginning of a line whose end has not come yet.
        self._begun: dict[tuple[str, str], bytes] = {}
        self._last_note = ""
        self._bar = False
        self._travel: Travel | None = None

    def job(self, header: dict[str, Any]) -> None:
        pass

    def note(self, header: dict[str, Any], text: str) -> None:
        if text != self._last_note:
            note(text)
        self._last_note = text

    def progress(self, header: dict[str, Any], text: str) -> None:
        """How far it is: a line that moves on a terminal, one that stays elsewhere."""
        done, total = header["progress"]["done"], header["progress"]["total"]
        comes = header["progress"].get("of") == "results"
        if not interactive():
            if not comes:  # of results, a note has said so
                from towline.cli.terminal.wording import size

                self.note(header, f"{text} · sending {size(total)}")
            return
        what = f"{text} · {'results' if comes else 'sending'}"
        if self._travel is None or self._travel.what != what:
            from towline.cli.terminal.travel import Travel

            self._travel = Travel(what)
        self._travel.at(done, total)

    def waits(self, text: str) -> None:
        """How long it has waited: a line that is written anew, on a terminal only."""
        if interactive():
            write(2, f"\r{text}\x1b[K".encode())
            self._bar = True

    def clear_bar(self) -> None:
        if self._travel is not None:
            self._travel.end()
        if self._bar:
            write(2, b"\r\x1b[K")
            self._bar = False

    def stream(self, header: dict[str, Any], blob: bytes) -> None:
        label, name = str(header.get("label") or ""), str(header["stream"])
        if not label:
            write(FD_OF[name], blob)
            return
        whole, newline, rest = (self._begun.pop((label, name), b"") + blob).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            whole, newline, rest = whole + newline + rest, b"\n", b""
        if newline:
            write(FD_OF[name], _prefixed(label, whole))
        if rest:
            self._begun[label, name] = rest

    def finish(self, view: dict[str, Any] | None) -> None:
        """Show the lines that will never be ended."""
        begun, self._begun = self._begun, {}
        for (label, name), line in begun.items():
            write(FD_OF[name], _prefixed(label, line))


class JsonLines:
    """Every frame as one JSON document; bytes that are not UTF-8 in base64."""

    def job(self, header: dict[str, Any]) -> None:
        say_json(header)

    def note(self, header: dict[str, Any], text: str) -> None:
        say_json(header)

    def progress(self, header: dict[str, Any], text: str) -> None:
        say_json(header)

    def waits(self, text: str) -> None:
        pass

    def clear_bar(self) -> None:
        pass

    def stream(self, header: dict[str, Any], blob: bytes) -> None:
        try:
            say_json({**header, "text": blob.decode("utf-8")})
        except UnicodeDecodeError:
            from binascii import b2a_base64

            say_json({**header, "base64": b2a_base64(blob, newline=False).decode("ascii")})

    def finish(self, view: dict[str, Any] | None) -> None:
        if view is not None:
            say_json({"end": view})


def _prefixed(label: str, lines: bytes) -> bytes:
    prefix = f"[{label}] ".encode("utf-8", "surrogateescape")
    return b"".join(prefix + line + b"\n" for line in lines.split(b"\n"))
