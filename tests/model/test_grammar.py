"""Requests: what they mean, how they are written back, and how mistakes are shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import RequestError, UsageError
from towline.model.grammar import FLAGS, KEYS, combine, format_request, parse_request
from towline.model.request import GpuNeed, Group, Need, Request


def one(**need: Any) -> Request:
    return Request((Group(1, Need(**need)),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("[]", Request()),
        ("2:[]", Request((Group(2),))),
        ("[gpu]", one(gpus=(GpuNeed(1, ""),))),
        ("[GTX 1070]", one(gpus=(GpuNeed(1, "gtx1070"),))),
        ("[rtx-3090,2:a100_80gb]", one(gpus=(GpuNeed(1, "rtx-3090"), GpuNeed(2, "a100_80gb")))),
        ("[cpus=0.5]", one(cpus=0.5)),
        ("[mem=10G]", one(mem_mb=10240)),
        ("[exclusive]", one(exclusive=True)),
        ("[gpumem=3G]", one(gpus=(GpuNeed(),), gpu_mem_mb=3072, gpu_reserved=False)),
        ("[gpuutil=50%]", one(gpus=(GpuNeed(),), gpu_util=0.5, gpu_reserved=False)),
        ("[gpumem=3G,reserve]", one(gpus=(GpuNeed(),), gpu_mem_mb=3072)),
        ("[2:k80,gpumem=3G]", one(gpus=(GpuNeed(2, "k80"),), gpu_mem_mb=3072, gpu_reserved=False)),
        ("[gpu,reserve]", one(gpus=(GpuNeed(),))),
        ("[CPUS=2,Exclusive]", one(cpus=2.0, exclusive=True)),
    ],
)
def test_text_means_this_request(text: str, request_: Request) -> None:
    assert parse_request(text) == request_


def test_groups_keep_their_order() -> None:
    assert parse_request("2:[],4:[gtx1070,2:gtx1060]") == Request(
        (
            Group(2),
            Group(4, Need(gpus=(GpuNeed(1, "gtx1070"), GpuNeed(2, "gtx1060")))),
        )
    )


def test_white_space_may_stand_anywhere() -> None:
    spaced = "  2 : [ GTX 1070 ,\n 2 : gpu , cpus = 4 , mem = 10 G , exclusive ] , [ ] "
    assert parse_request(spaced) == parse_request("2:[gtx1070,2:gpu,cpus=4,mem=10G,exclusive],[]")


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", 0, "expected a count or `[`"),
        ("gtx1070", 0, "expected a count or `[`"),
        ("2:[gtx1070,,]", 11, "expected a GPU name or a setting"),
        ("[gtx1070,]", 9, "expected a GPU name or a setting"),
        ("[,]", 1, "expected a GPU name, a setting or `]`"),
        ("[", 1, "expected a GPU name, a setting or `]`"),
        ("[gtx1070", 8, "expected `,` or `]`"),
        ("[] x", 3, "expected `,` or the end of the request"),
        ("[],", 3, "expected `[`"),
        ("2:gpu", 2, "expected `[`"),
        ("2[]", 1, "expected `:` after the number of processes"),
        ("0:[]", 0, "expected a number of processes from 1 to 100000"),
        ("100001:[]", 0, "expected a number of processes from 1 to 100000"),
        ("9" * 5000 + ":[]", 0, "expected a number of processes from 1 to 100000"),
        ("99999:[],2:[]", 9, "a job has at most 100000 processes"),
        ("[65:gpu]", 1, "expected a number of GPUs from 1 to 64"),
        ("[0:gpu]", 1, "expected a number of GPUs from 1 to 64"),
        ("[2:]", 3, "expected a GPU name, or `gpu` for any"),
        ("[2:exclusive]", 3, "expected a GPU name, or `gpu` for any"),
        ("[2:cpus=3]", 3, "expected a GPU name, or `gpu` for any"),
        ("[2]", 1, "`2:gpu` asks for 2 GPUs"),
        ("[3090]", 1, "expected a GPU name with a letter in it"),
        ("[gpus=2]", 1, "there is no setting `gpus`; expected one of cpus, mem, gpumem, gpuutil"),
        ("[cpus]", 5, "expected `=` after `cpus`"),
        ("[cpus=]", 6, "expected a number after `cpus=`"),
        ("[cpus=-1]", 6, "expected a number after `cpus=`"),
        ("[cpus=0]", 6, "`cpus` must be more than 0"),
        ("[cpus=1e9]", 6, "expected a number after `cpus=`"),
        ("[mem=10Q]", 5, "'10Q' is not an amount of memory"),
        ("[mem=0]", 5, "an amount of memory must be more than zero"),
        ("[gpuutil=1.5]", 9, "`gpuutil` must be more than 0 and at most 1"),
        ("[mem=1G,mem=2G]", 8, "`mem` is given twice in one process"),
        ("[exclusive,exclusive]", 11, "`exclusive` is given twice in one process"),
        ("[exclusive=1]", 10, "`exclusive` takes no value"),
        ("[cpus=2,reserve]", 8, "`reserve` needs a GPU beside it"),
        ("[é]", 1, "expected a GPU name, a setting or `]`"),
    ],
)
def test_mistake_is_shown_with_its_place(text: str, place: int, expected: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(text)
    first, line, caret = caught.value.text.split("\n")
    assert first.startswith("cannot read the request: ")
    assert expected in first
    assert caret.index("^") - 2 == place
    assert line[2:].removesuffix("…") == text[: len(line) - 2].rstrip("\n")[: place + 20]


def test_place_in_a_long_request_stays_on_the_screen() -> None:
    with pytest.raises(RequestError) as caught:
        parse_request("[" + "gtx1070," * 100 + "!]")
    _, line, caret = caught.value.text.split("\n")
    assert len(line) < 100
    assert line[caret.index("^")] == "!"


def test_wide_characters_do_not_move_the_caret() -> None:
    with pytest.raises(RequestError) as caught:
        parse_request("[漢字]")
    assert caught.value.text.split("\n")[1:] == ["  [??]", "   ^"]


names = st.from_regex(r"[a-z][a-z0-9._+/-]{0,12}", fullmatch=True).filter(
    lambda name: name not in (*KEYS, *FLAGS, "gpu")
)
gpus = st.lists(
    st.builds(GpuNeed, st.integers(1, 64), st.one_of(st.just(""), names)), max_size=3
).map(tuple)


@st.composite
def needs(draw: st.DrawFn) -> Need:
    asked = draw(gpus)
    mem_mb = draw(st.sampled_from([0, 1, 1000, 3072]))
    util = draw(st.sampled_from([0.0, 0.001, 0.5, 1.0]))
    if not asked:
        mem_mb, util = 0, 0.0
    return Need(
        cpus=draw(st.integers(1, 100_000_000)) / 1000,
        mem_mb=draw(st.integers(0, 1 << 40)),
        gpus=asked,
        gpu_mem_mb=mem_mb,
        gpu_util=util,
        gpu_reserved=draw(st.booleans()) if mem_mb or util else True,
        exclusive=draw(st.booleans()),
    )


requests = st.lists(
    st.builds(Group, st.one_of(st.just(1), st.integers(1, 20_000)), needs()), min_size=1, max_size=5
).map(lambda groups: Request(tuple(groups)))


@given(requests)
def test_what_is_written_is_read_back_identically(request: Request) -> None:
    assert parse_request(format_request(request)) == request


def test_defaults_are_left_out() -> None:
    assert format_request(parse_request("1:[1:gpu,cpus=1,gpumem=2048M]")) == ("[gpu,gpumem=2G]")
    assert format_request(Request()) == "[]"


@given(st.one_of(st.text(), st.text(alphabet="[]:,=.% 0129gpumecsxlr\n²é")))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        request = parse_request(text)
    except RequestError as error:
        _, line, caret = error.text.split("\n")
        assert 2 <= caret.index("^") <= len(line)
    else:
        assert parse_request(format_request(request)) == request


def test_shortcuts_apply_to_every_process() -> None:
    combined = combine("2:[],[exclusive]", cpus="4", mem="10G", gpus="2:gtx1070")
    assert combined == parse_request(
        "2:[2:gtx1070,cpus=4,mem=10G],[2:gtx1070,cpus=4,mem=10G,exclusive]"
    )


def test_shortcuts_alone_ask_for_one_process() -> None:
    assert combine() == parse_request("[]")
    assert combine(gpus="2") == parse_request("[2:gpu]")
    assert combine(gpus=" gtx1070, 2:k80 ") == parse_request("[gtx1070,2:k80]")
    assert combine(exclusive=True) == parse_request("[exclusive]")


def test_shortcut_for_gpus_shares_as_the_request_says() -> None:
    assert combine("[gpumem=3G]", gpus="2") == parse_request("[2:gpu,gpumem=3G]")


@pytest.mark.parametrize(
    ("request_", "shortcut"),
    [
        ("[cpus=1]", {"cpus": "1"}),
        ("[mem=1G]", {"mem": "1G"}),
        ("[],[gpu]", {"gpus": "1"}),
        ("[exclusive]", {"exclusive": True}),
    ],
)
def test_same_thing_both_ways_is_refused(request_: str, shortcut: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="is given both in the request and as --"):
        combine(request_, **shortcut)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shortcut", "message"),
    [
        ({"cpus": "many"}, "cannot read --cpus: expected a number"),
        ({"mem": "10Q"}, "cannot read --mem: '10Q' is not an amount of memory"),
        ({"gpus": "0"}, "cannot read --gpus: expected a number of GPUs from 1 to 64"),
        ({"gpus": ""}, "cannot read --gpus: expected a number of GPUs or a GPU name"),
        ({"gpus": "cpus=2"}, "cannot read --gpus: only GPUs can be given here"),
        ({"gpus": "[gpu]"}, "cannot read --gpus: expected a number of GPUs or a GPU name"),
        ({"gpus": "gpu]"}, "cannot read --gpus: expected `,` or the end"),
        ({"gpus": "²"}, "cannot read --gpus: "),
    ],
)
def test_wrong_shortcut_is_named(shortcut: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        combine(**shortcut)  # type: ignore[arg-type]
    assert caught.value.text.startswith(message)
