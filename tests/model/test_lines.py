"""Files of commands, matrices and tables of parameters become commands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import UsageError
from towline.model.lines import (
    LONGEST_ARGUMENT,
    TypedCommand,
    as_name,
    commands_from,
    first_difference,
    name_from,
)
from towline.model.parameters import fill, matrix_commands, row_commands


def shell(data: str | bytes) -> list[tuple[int, str]]:
    """The numbers and texts of the commands of a file."""
    raw = data.encode() if isinstance(data, str) else data
    found = commands_from(raw, "x.txt")
    assert all(command.argv[:2] == ["bash", "-c"] for command in found)
    return [(command.number, command.argv[2]) for command in found]


def argvs(commands: list[TypedCommand]) -> list[list[str]]:
    return [command.argv for command in commands]


def complaint(data: bytes) -> str:
    with pytest.raises(UsageError) as raised:
        commands_from(data, "x.txt")
    assert raised.value.hint
    return raised.value.text


def test_each_line_is_a_command_with_the_number_it_has_in_the_file() -> None:
    text = "#!/bin/bash\n\n  # indented comment\necho one\n\t\n  echo two  \n"
    assert shell(text) == [(4, "echo one"), (6, "echo two")]


def test_quotes_pipes_and_comments_behind_a_command_are_left_to_bash() -> None:
    line = "echo \"a # b\" 'c' | tee $HOME/x # last"
    assert shell(line) == [(1, line)]


def test_a_backslash_at_the_end_takes_the_next_line_in() -> None:
    text = "python train.py \\\n    --lr 0.1 \\\n    --seed 7\necho next\n"
    (first, *rest) = commands_from(text.encode(), "x.txt")
    assert first.argv[2] == "python train.py \\\n    --lr 0.1 \\\n    --seed 7"
    assert first.title == "python train.py --lr 0.1 --seed 7"
    assert (first.number, rest[0].number) == (1, 4)


def test_an_escaped_backslash_at_the_end_goes_on_with_nothing() -> None:
    assert shell("echo \\\\\necho b\n") == [(1, "echo \\\\"), (2, "echo b")]


def test_a_comment_does_not_go_on_and_does_not_end_what_goes_on() -> None:
    assert shell("# a \\\necho b \\\n# c\n") == [(2, "echo b \\\n# c")]


def test_files_from_other_systems_are_read() -> None:
    assert shell(b"\xef\xbb\xbfecho a\r\necho b\r\n") == [(1, "echo a"), (2, "echo b")]


def test_only_newlines_end_a_line() -> None:
    line = "echo 'a\x0bb\x0cc\x85d\u2028e'"
    assert shell(line) == [(1, line)]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "x.txt has no command in it"),
        (b"# only\n\n", "x.txt has no command in it"),
        (b"echo a\necho \xff\n", "x.txt, line 2 is not UTF-8 text: byte 0xff"),
        (b"echo a\n\necho \0\n", "x.txt, line 3 contains a NUL character"),
        (b"echo a\necho b \\\n", "x.txt, line 2 ends with `\\`, and nothing follows"),
        (b"a\n" + b"x" * LONGEST_ARGUMENT, f"x.txt, line 2 has {LONGEST_ARGUMENT} bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_the_line(data: bytes, told: str) -> None:
    assert complaint(data).startswith(told)


@given(st.binary(max_size=200))
def test_any_bytes_are_commands_or_a_complaint(data: bytes) -> None:
    try:
        found = commands_from(data, "x")
    except UsageError:
        return
    lines = data.count(b"\n") + 1
    assert found
    assert all(1 <= command.number <= lines for command in found)
    assert [c.number for c in found] == sorted({c.number for c in found})


def test_a_matrix_is_every_combination_and_the_last_name_changes_fastest() -> None:
    command = ["python", "train.py", "--lr", "{lr}", "--out={model}/{lr}"]
    found = matrix_commands(["lr=0.1,0.01", "model=a,b"], command)
    assert [c.title for c in found] == [
        "lr=0.1 model=a",
        "lr=0.1 model=b",
        "lr=0.01 model=a",
        "lr=0.01 model=b",
    ]
    assert found[1].argv == ["python", "train.py", "--lr", "0.1", "--out=b/0.1"]
    assert [c.number for c in found] == [1, 2, 3, 4]


def test_values_stay_one_argument_whatever_they_contain() -> None:
    found = matrix_commands(["x=a b,$HOME;`id`,{y}"], ["echo", "{x}"])
    assert argvs(found) == [["echo", "a b"], ["echo", "$HOME;`id`"], ["echo", "{y}"]]


def test_values_with_commas_are_quoted() -> None:
    found = matrix_commands(['x="1,2",3,"say ""hi"""', "y=a=b"], ["e", "{x}", "{y}"])
    assert [argv[1] for argv in argvs(found)] == ["1,2", "3", 'say "hi"']
    assert found[0].argv[2] == "a=b"


def test_doubled_braces_stay_braces() -> None:
    assert fill("{{{x}}} {{}}", {"x": "1"}) == "{1} {}"


@pytest.mark.parametrize(
    ("axes", "command", "told"),
    [
        (["lr=1"], ["x", "{lt}"], "there is no value for {lt} in '{lt}'"),
        (["lr=1"], ["x", "{}", "{lr}"], "there is no value for {}"),
        (["lr=1", "model=a"], ["x", "{lr}"], "the command does not use `model`"),
        (["lr=1", "python"], ["x", "{lr}"], "'python' is not NAME=VALUES"),
        (["=1"], ["x"], "'=1' is not NAME=VALUES"),
        (["lr="], ["x", "{lr}"], "`lr` has no values"),
        (["lr=1", "lr=2"], ["x", "{lr}"], "`lr` is named twice"),
        (['lr="1'], ["x", "{lr}"], "the quotes in"),
        (["lr=1"], ["x", "{lr}", "a { b"], "a lone `{` in 'a { b'"),
    ],
)
def test_what_is_wrong_with_a_matrix_is_named(
    axes: list[str], command: list[str], told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        matrix_commands(axes, command)
    assert raised.value.text.startswith(told)
    assert raised.value.hint


def test_a_matrix_of_too_many_jobs_is_refused_before_it_is_made() -> None:
    axes = [f"{name}={','.join('0123456789')}" for name in "abcdefghijkl"]
    with pytest.raises(UsageError, match="makes 1000000000000 jobs"):
        matrix_commands(axes, [f"{{{name}}}" for name in "abcdefghijkl"])


def test_each_row_of_a_csv_file_is_a_command() -> None:
    data = b'lr,note,id\n0.10,"a, b",7\n\n1e-3,"two\nlines",8\n'
    found = row_commands(data, "runs.csv", ["t", "--lr={lr}", "{note}"])
    assert argvs(found) == [["t", "--lr=0.10", "a, b"], ["t", "--lr=1e-3", "two\nlines"]]
    assert [c.title for c in found] == ["lr=0.10 note=a, b", "lr=1e-3 note=two\nlines"]


def test_tabs_separate_the_values_of_a_tsv_file() -> None:
    assert argvs(row_commands(b"a\tb\n1,5\t2\n", "x.tsv", ["{a}", "{b}"])) == [["1,5", "2"]]


@pytest.mark.parametrize("source", ["runs.jsonl", "stdin"])
def test_each_line_of_a_json_lines_file_is_a_command(source: str) -> None:
    data = b'{"lr": 0.10, "m": "a b", "on": true}\n\n{"lr": 1e-3, "m": [1, "x"], "on": null}\n'
    found = row_commands(data, source, ["t", "{lr}", "{m}", "{on}"])
    assert argvs(found) == [["t", "0.10", "a b", "true"], ["t", "1e-3", '[1, "x"]', "null"]]


@pytest.mark.parametrize(
    ("data", "source", "told"),
    [
        (b"lr,m\n1\n", "x.csv", "x.csv, line 2 has 1 values, but the header has 2 names"),
        (b"lr,lr\n1,2\n", "x.csv", "x.csv has two columns `lr`"),
        (b"lr,\n1,2\n", "x.csv", "x.csv: '' cannot be the name of column 2"),
        (b'lr\n"1\n', "x.csv", "x.csv, line 2: unexpected end of data"),
        (b"lr\n", "x.csv", "x.csv has no values in it"),
        (b"", "x.csv", "x.csv has no values in it"),
        (b"m\n1\n", "x.csv", "x.csv, line 2: there is no value for {lr}"),
        (b'{"lr": 1}\n{"l": 2}\n', "x.jsonl", "x.jsonl, line 2: there is no value for {lr}"),
        (b'{"lr": 1}\n[1]\n', "x.jsonl", "x.jsonl, line 2 is not a JSON object"),
        (b'{"lr": 1\n', "x.jsonl", "x.jsonl, line 1 is not a JSON object"),
        (b'{"lr": "\\u0000"}\n', "x.jsonl", "x.jsonl, line 1: no argument can be `lr`'s value"),
        (b'{"lr": "\\ud800"}\n', "x.jsonl", "x.jsonl, line 1: no argument can be `lr`'s value"),
        (b"lr\n\xff\n", "x.csv", "x.csv, line 2 is not UTF-8 text"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_with_the_line(
    data: bytes, source: str, told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        row_commands(data, source, ["t", "{lr}"])
    assert raised.value.text.startswith(told)


def test_a_table_that_the_command_does_not_use_is_a_slip() -> None:
    with pytest.raises(UsageError, match=r"the command uses nothing of x\.csv") as raised:
        row_commands(b"lr\n1\n", "x.csv", ["t"])
    assert "{lr}" in raised.value.hint


@given(
    st.dictionaries(
        st.text("abcxyz", min_size=1, max_size=3),
        st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"])),
        min_size=1,
        max_size=4,
    )
)
def test_a_filled_word_is_the_values_it_names(values: dict[str, str]) -> None:
    word = "|".join(f"{{{name}}}" for name in values)
    assert fill(word, values) == "|".join(values.values())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("sweep.txt", "sweep"),
        ("a/b/my runs.v2.sh", "my_runs.v2"),
        ("./show", "show"),
        (".hidden", "hidden"),
        ("---.txt", ""),
        ("last.txt", "last_"),
        ("雪.txt", "雪"),
        ("x" * 100 + ".txt", "x" * 60),
    ],
)
def test_a_batch_is_called_after_its_file(path: str, name: str) -> None:
    assert name_from(path) == name


@given(st.text())
def test_a_name_stays_as_it_is_once_it_is_one(text: str) -> None:
    name = as_name(text)
    assert as_name(name) == name and "/" not in name


def test_the_first_command_that_differs_is_found() -> None:
    now = [TypedCommand(1, ["a"], ""), TypedCommand(2, ["b"], "")]
    assert first_difference([["a"], ["b"]], now) is None
    assert first_difference([["a"], ["c"]], now) == 1
    assert first_difference([["a"]], now) == 1
    assert first_difference([["a"], ["b"], ["c"]], now) == 2


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("x=1..4", ["1", "2", "3", "4"]),
        ("x=0..100..50,7", ["0", "50", "100", "7"]),
        ("x=3..1", ["3", "2", "1"]),
        ("x=-1..1", ["-1", "0", "1"]),
        ("x=1-3,a..b,1.5", ["1-3", "a..b", "1.5"]),
    ],
)
def test_a_range_is_each_of_its_numbers(axis: str, values: list[str]) -> None:
    found = matrix_commands([axis], ["echo", "{x}"])
    assert [command.argv[1] for command in found] == values


@pytest.mark.parametrize("axis", ["x=1..3..0", "x=0..999999999"])
def test_a_range_that_is_none_or_far_too_long_is_refused(axis: str) -> None:
    with pytest.raises(UsageError):
        matrix_commands([axis], ["echo", "{x}"])
