"""The request grammar: text to `Request` and back.

    request  = group {"," group}
    group    = [count ":"] "[" [item {"," item}] "]"
    item     = [count ":"] gpu-name | "exclusive" | "reserve" | key "=" value
    key      = "cpus" | "mem" | "gpumem" | "gpuutil"

`gpu` stands for any GPU. White space may stand anywhere. Case does not matter.
"""

import unicodedata
from functools import lru_cache
from typing import NoReturn

from msgspec import Struct, field

from towline.errors import RequestError, UsageError
from towline.model.request import GpuNeed, Group, Need, Request
from towline.model.units import parse_memory_mb, parse_number, shown

MOST_PROCESSES = 100_000
MOST_GPUS = 64
MOST_CPUS = 100_000
KEYS = ("cpus", "mem", "gpumem", "gpuutil")
FLAGS = ("exclusive", "reserve")

#: How much of a long request an error shows on each side of the caret.
_SHOWN_BEFORE, _SHOWN_AFTER = 60, 20
_EXAMPLE = "Requests look like [], [gpu], 4:[cpus=2,mem=10G] or 2:[],4:[gtx1070,2:gtx1060]."


@lru_cache(maxsize=4096)
def parse_request(text: str) -> Request:
    """The request that `text` describes."""
    return _build(_Reader(text, "the request").groups())


def combine(
    request: str | None = None,
    cpus: str | None = None,
    mem: str | None = None,
    gpus: str | None = None,
    exclusive: bool = False,
) -> Request:
    """A request with the shortcuts (`--cpus` ...) applied to every process of it."""
    groups = _Reader("[]" if request is None else request, "the request").groups()
    shortcuts: dict[str, float | int | bool] = {}
    if cpus is not None:
        shortcuts["cpus"] = _shortcut("cpus", cpus)
    if mem is not None:
        shortcuts["mem"] = _shortcut("mem", mem)
    if exclusive:
        shortcuts["exclusive"] = True
    asked_gpus = None if gpus is None else _Reader(gpus, "--gpus").gpus_alone()
    for _, process in groups:
        for key, value in shortcuts.items():
            if key in process.given:
                raise _both_ways(key)
            process.given[key] = value
        if asked_gpus is not None:
            if process.gpus:
                raise _both_ways("gpus")
            process.gpus.extend(asked_gpus)
    return _build(groups)


def format_request(request: Request) -> str:
    """The canonical text of a request: what `parse_request` turns back into an equal one."""
    return ",".join(
        f"{_quantifier(group.count)}[{','.join(_items(group.need))}]" for group in request.groups
    )


def _items(need: Need) -> list[str]:
    items = [f"{_quantifier(gpu.count)}{gpu.name or 'gpu'}" for gpu in need.gpus]
    if need.cpus != Need().cpus:
        items.append(f"cpus={_decimal(need.cpus)}")
    if need.mem_mb:
        items.append(f"mem={_memory(need.mem_mb)}")
    if need.gpu_mem_mb:
        items.append(f"gpumem={_memory(need.gpu_mem_mb)}")
    if need.gpu_util:
        items.append(f"gpuutil={_decimal(need.gpu_util)}")
    if need.gpu_reserved and (need.gpu_mem_mb or need.gpu_util):
        items.append("reserve")
    if need.exclusive:
        items.append("exclusive")
    return items


def _quantifier(count: int) -> str:
    return "" if count == 1 else f"{count}:"


def _decimal(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _memory(mb: int) -> str:
    return f"{mb}M" if mb % 1024 else f"{mb // 1024}G"


class _Process(Struct):
    """One bracket as it was written, so that what was left out can still be told."""

    gpus: list[GpuNeed] = field(default_factory=list)
    given: dict[str, float | int | bool] = field(default_factory=dict)

    def need(self) -> Need:
        mem_mb, util = int(self.given.get("gpumem", 0)), float(self.given.get("gpuutil", 0.0))
        shares = bool(mem_mb or util)
        gpus = self.gpus or ([GpuNeed()] if shares else [])
        return Need(
            cpus=float(self.given.get("cpus", Need().cpus)),
            mem_mb=int(self.given.get("mem", 0)),
            gpus=tuple(gpus),
            gpu_mem_mb=mem_mb,
            gpu_util=util,
            gpu_reserved=not shares or "reserve" in self.given,
            exclusive="exclusive" in self.given,
        )


def _build(groups: list[tuple[int, _Process]]) -> Request:
    return Request(tuple(Group(count, process.need()) for count, process in groups))


def _value(key: str, text: str) -> float | int:
    """The value of one `key=value`; a UsageError says what is wrong with it."""
    if key in ("mem", "gpumem"):
        return parse_memory_mb(text)
    stripped = text.strip()
    percent = key == "gpuutil" and stripped.endswith("%")
    number = parse_number(stripped.removesuffix("%") if percent else stripped)
    example = "gpuutil=0.5 or gpuutil=50%" if key == "gpuutil" else "cpus=4 or cpus=0.5"
    if number is None:
        raise UsageError(f"expected a number after `{key}=`, like {example}, not {shown(text)}")
    # Thousandths are exact enough, and their shortest text never needs an exponent.
    value = round(number / 100 if percent else number, 3)
    most = 1 if key == "gpuutil" else MOST_CPUS
    if not 0.001 <= value <= most:
        raise UsageError(f"`{key}` must be more than 0 and at most {most}, like {example}")
    return value


def _shortcut(key: str, text: str) -> float | int:
    try:
        return _value(key, text)
    except UsageError as error:
        raise UsageError(f"cannot read --{key}: {error.text}", error.hint) from None


def _both_ways(key: str) -> UsageError:
    return UsageError(
        f"`{key}` is given both in the request and as --{key}",
        f"Leave out one of the two: --{key} applies to every process of the request.",
    )


class _Reader:
    """Reads one text from left to right; knows the place for every error."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.place = 0

    def groups(self) -> list[tuple[int, _Process]]:
        groups: list[tuple[int, _Process]] = []
        total = 0
        while True:
            start = self._skip_space()
            count = self._count(MOST_PROCESSES, "processes")
            total += count
            if total > MOST_PROCESSES:
                self._fail(f"a job has at most {MOST_PROCESSES} processes", start)
            if not self._take("["):
                self._fail("expected `[`" if groups or count > 1 else "expected a count or `[`")
            groups.append((count, self._process()))
            if not self._take(","):
                break
        self._end("expected `,` or the end of the request")
        return groups

    def gpus_alone(self) -> list[GpuNeed]:
        """GPUs without brackets, as in `--gpus 2` or `--gpus 2:gtx1070`."""
        start = self._skip_space()
        if self.text.strip().isdigit():
            count = self._number(MOST_GPUS, "GPUs")
            self._end("expected the end")
            return [GpuNeed(count)]
        process = _Process()
        while True:
            self._item(process, "a number of GPUs or a GPU name")
            if not self._take(","):
                break
        self._end("expected `,` or the end")
        if process.given:
            self._fail("only GPUs can be given here, like 2, gtx1070 or 2:gtx1070", start)
        return process.gpus

    def _process(self) -> _Process:
        process = _Process()
        reserve_at = -1
        if self._take("]"):
            return process
        expected = "a GPU name, a setting or `]`"
        while True:
            start = self._skip_space()
            self._item(process, expected)
            expected = "a GPU name or a setting"
            if reserve_at < 0 and "reserve" in process.given:
                reserve_at = start
            if self._take("]"):
                break
            if not self._take(","):
                self._fail("expected `,` or `]`")
        if reserve_at >= 0 and not process.need().gpus:
            self._fail("`reserve` needs a GPU beside it, like [gpu,reserve]", reserve_at)
        return process

    def _item(self, process: _Process, expected: str) -> None:
        start = self._skip_space()
        word = self._word()
        if word.isdigit() and self._peek() == ":":
            self.place = start
            count = self._count(MOST_GPUS, "GPUs")
            start = self._skip_space()
            name = self._word()
            if not name or self._peek() == "=" or name in FLAGS or name in KEYS:
                self._fail("expected a GPU name, or `gpu` for any", start)
            process.gpus.append(GpuNeed(count, self._gpu_name(name, start)))
        elif not word:
            self._fail(f"expected {expected}", start)
        elif word in KEYS or self._peek() == "=":
            self._setting(process, word, start)
        elif word in FLAGS:
            self._give(process, word, True, start)
        else:
            process.gpus.append(GpuNeed(1, self._gpu_name(word, start)))

    def _setting(self, process: _Process, key: str, start: int) -> None:
        if key not in KEYS:
            if key in FLAGS:
                self._fail(f"`{key}` takes no value; expected `,` or `]`")
            self._fail(f"there is no setting `{key}`; expected one of {', '.join(KEYS)}", start)
        if not self._take("="):
            self._fail(f"expected `=` after `{key}`")
        value_at = self._skip_space()
        end = value_at
        while end < len(self.text) and self.text[end] not in ",]":
            end += 1
        try:
            value = _value(key, self.text[value_at:end].rstrip())
        except UsageError as error:
            self._fail(error.text, value_at, error.hint)
        self.place = end
        self._give(process, key, value, start)

    def _give(self, process: _Process, key: str, value: float | int | bool, start: int) -> None:
        if key in process.given:
            self._fail(f"`{key}` is given twice in one process", start)
        process.given[key] = value

    def _gpu_name(self, word: str, start: int) -> str:
        if word == "gpu":
            return ""
        if word.isdigit():
            wish = f"; `{word}:gpu` asks for {word} GPUs" if int(word[:9]) <= MOST_GPUS else ""
            self._fail(f"expected a GPU name with a letter in it{wish}", start)
        return word

    def _word(self) -> str:
        """Letters, digits and `._+-/`, lower case, white space between them left out."""
        letters: list[str] = []
        place = self._skip_space()
        while place < len(self.text):
            letter = self.text[place]
            if letter.isascii() and (letter.isalnum() or letter in "._+-/"):
                letters.append(letter.lower())
                self.place = place + 1
            elif not letter.isspace():
                break
            place += 1
        return "".join(letters)

    def _count(self, most: int, things: str) -> int:
        """`n:` if it is there, else 1."""
        if not self._peek().isdigit():
            return 1
        count = self._number(most, things)
        if not self._take(":"):
            self._fail(f"expected `:` after the number of {things}")
        return count

    def _number(self, most: int, things: str) -> int:
        start = end = self._skip_space()
        while end < len(self.text) and self.text[end].isascii() and self.text[end].isdigit():
            end += 1
        digits = self.text[start:end].lstrip("0")
        if start == end or not digits or len(digits) > 9 or int(digits) > most:
            self._fail(f"expected a number of {things} from 1 to {most}", start)
        self.place = end
        return int(digits)

    def _end(self, expected: str) -> None:
        if self._skip_space() < len(self.text):
            self._fail(expected)

    def _skip_space(self) -> int:
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1
        return self.place

    def _peek(self) -> str:
        place = self._skip_space()
        return self.text[place] if place < len(self.text) else ""

    def _take(self, letter: str) -> bool:
        found = self._peek() == letter
        self.place += found
        return found

    def _fail(self, expected: str, place: int | None = None, hint: str = "") -> NoReturn:
        line = _with_caret(self.text, self.place if place is None else place)
        raise RequestError(f"cannot read {self.what}: {expected}\n{line}", hint or self._hint())

    def _hint(self) -> str:
        return _EXAMPLE if self.what == "the request" else ""


def _with_caret(text: str, place: int) -> str:
    """Two lines: the text around `place`, and a caret below it."""
    start, end = max(0, place - _SHOWN_BEFORE), min(len(text), place + _SHOWN_AFTER)
    before = ("…" if start else "") + _one_line(text[start:place])
    after = _one_line(text[place:end]) + ("…" if end < len(text) else "")
    return f"  {before}{after}\n  {' ' * len(before)}^"


def _one_line(text: str) -> str:
    return "".join(" " if letter.isspace() else _one_column(letter) for letter in text)


def _one_column(letter: str) -> str:
    # A character that takes no or two columns would move the caret away from its place.
    wide = unicodedata.east_asian_width(letter) in "WF" or unicodedata.combining(letter)
    return "?" if wide or not letter.isprintable() else letter
