"""What a hostile agent may say: nearly right, quite wrong, and no message at all."""

import struct
from typing import Any

from hypothesis import strategies as st

from fuzz.machines import HELLO, RAW, frame

ODD_TEXTS = ["", "\0", "\udcff", "\ud800", "\x1b[2J", "../../x", "x" * 5000, "KEY0", "KEY1"]
texts = st.sampled_from(ODD_TEXTS) | st.text(max_size=20)
numbers = st.sampled_from(
    [0, 1, -1, 2**31, 2**63, -(2**63), 2**64, 10**30, 1.5, 1e308, -0.0, float("inf"), float("nan")]
) | st.integers() | st.floats()  # fmt: skip
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def rarely(
    bad: st.SearchStrategy[Any], good: st.SearchStrategy[Any], percent: int = 20
) -> st.SearchStrategy[Any]:
    return st.integers(0, 99).flatmap(lambda number: bad if number < percent else good)


def mostly(value: st.SearchStrategy[Any] | Any) -> st.SearchStrategy[Any]:
    return rarely(junk, value if isinstance(value, st.SearchStrategy) else st.just(value), 15)


def fields(**given: Any) -> st.SearchStrategy[Any]:
    """An object of which each field may be wrong or left out."""
    choices = {name: mostly(value) for name, value in given.items()}
    return st.fixed_dictionaries({}, optional=choices)


def whole(**given: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({name: mostly(value) for name, value in given.items()})


keys = st.sampled_from(["KEY0", "KEY1", "KEY2", "KEY3"]) | texts
times = st.just(1.8e9) | numbers
digests = st.just("ab" * 32) | texts
endings = fields(
    code=st.integers(0, 255),
    signal=st.integers(0, 64),
    cause=st.sampled_from(["", "stopped", "oom", "lost", "void", "absent", "snapshot", "silent"]),
    text=texts,
    started=times,
    ended=times,
    made=numbers,
    out_size=numbers,
    err_size=numbers,
    said=st.lists(texts, max_size=3),
)
states = fields(
    state=st.sampled_from(["unknown", "held", "running", "ended", "elsewhere"]),
    started=times,
    ending=endings,
    host=texts,
)
usage = fields(rss_mb=numbers, cpu_s=numbers, pids=st.lists(numbers, max_size=3))
claims = fields(
    user=texts, key=texts, mine=st.booleans(), cpus=numbers, mem_mb=numbers, gpus=st.lists(numbers),
    gpu_mem_mb=numbers, gpu_util=numbers, reserved=st.booleans(), exclusive=st.booleans(),
    use=usage,
)  # fmt: skip
gpu_lines = st.lists(
    st.tuples(numbers, texts, texts, numbers, numbers, numbers).map(
        lambda words: ", ".join(map(str, words))
    ),
    max_size=3,
).map("\n".join)
raws = fields(
    time=times,
    meminfo=st.just(RAW["meminfo"]) | texts | numbers.map(lambda n: f"MemTotal: {n}\nMemFree: 5"),
    stat=st.just(RAW["stat"]) | texts | st.lists(numbers).map(lambda n: f"cpu {n}"),
    loadavg=texts | numbers.map(str),
    gpus=gpu_lines,
    gpu_apps=gpu_lines,
    gpu_error=texts,
    jobs=st.dictionaries(keys, mostly(usage), max_size=3),
    own_cpu_s=numbers,
    claims=st.lists(mostly(claims), max_size=3),
    disk_free_mb=numbers,
)
by_key = st.dictionaries(keys, mostly(states), max_size=4)
#: Operation -> what may come back.
answers: dict[str, st.SearchStrategy[Any]] = {
    "probe": whole(raw=raws),
    "observe": whole(states=by_key),
    "void": whole(states=by_key),
    "watch": fields(),
    "start": fields(
        accepted=st.lists(keys, max_size=3),
        refused=st.dictionaries(keys, mostly(fields(code=texts, text=texts)), max_size=3),
    ),
    "stop": fields(stopping=st.lists(keys, max_size=3)),
    "missing": fields(missing=st.lists(digests), begun=st.dictionaries(digests, numbers)),
    "have_snapshot": fields(have=st.booleans(), recent=st.lists(digests, max_size=3)),
    "snapshot": fields(),
    "free_port": fields(port=numbers),
}
refusals = st.fixed_dictionaries({"error": mostly(fields(code=texts, text=texts))})
events = st.one_of(
    st.fixed_dictionaries(
        {"event": st.just("jobs")},
        optional={
            "held": mostly(st.lists(mostly(keys), max_size=3)),
            "started": mostly(st.lists(mostly(st.tuples(keys, numbers, times)), max_size=3)),
            "ended": mostly(st.lists(mostly(st.tuples(keys, endings)), max_size=3)),
        },
    ),
    st.fixed_dictionaries({"event": st.just("probe")}, optional={"raw": mostly(raws)}),
    st.fixed_dictionaries(
        {"event": st.just("handed")}, optional={"news": mostly(st.dictionaries(keys, junk))}
    ),
    st.fixed_dictionaries({"event": junk}),
    st.fixed_dictionaries({"stream": mostly(st.integers(0, 3)), "credit": numbers}),
    st.fixed_dictionaries({"re": mostly(st.integers(0, 20))}, optional={"states": junk}),
    junk,
)
#: What is no message: broken heads, cut or deep JSON, other encodings.
broken = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)).map(
        lambda sizes: struct.pack(">II", *sizes)
    ),
    st.sampled_from(["[" * 100_000, '{"event":' * 5000, "5", "nul", "\xff", "1" * 5000, ""]).map(
        lambda text: frame(text.encode("latin-1"))
    ),
    st.binary(max_size=30).map(frame),
)
odd_hellos = fields(**HELLO, identity=fields(host=texts, machine=texts, pidns=numbers)).map(
    lambda hello: {**HELLO, **hello}
)
hellos = rarely(odd_hellos | broken, st.just(HELLO))
#: Most connections greet well, so that more than the greeting is tried.
good_answers = st.just({"probe": [{"raw": RAW}], "observe": ["KNOWN"], "void": ["KNOWN"]})
odd_answers = st.fixed_dictionaries(
    {op: st.lists(rarely(refusals, mostly(good)), max_size=2) for op, good in answers.items()}
)
#: One connection: the greeting, what is answered, and what is said unasked.
connections = st.fixed_dictionaries(
    {
        "hello": hellos,
        "answers": rarely(odd_answers, good_answers, 30),
        "events": st.lists(rarely(broken, events, 10), min_size=10, max_size=40),
    }
)
