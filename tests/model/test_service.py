"""Services as they are typed, named and started."""

import pytest

from towline.errors import UsageError
from towline.model.service import Service, argv_of, name_of, orders_of, path_in, services_from


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("tensorboard", "tensorboard"),
        ("jupyter lab --no-browser --port $PORT", "jupyter"),
        ("/opt/bin/jupyter lab", "jupyter"),
        ("python3 -m http.server $PORT", "http.server"),
        ("python -u serve/app.py --port $PORT", "app"),
        ("COLOUR=blue exec mlflow ui -p $PORT", "mlflow"),
        ("cd 'it", "cd"),
        ("./ünï serve", "n"),
        ("雪", "service"),
        ("x" * 99, "x" * 40),
    ],
)
def test_a_service_is_named_after_its_program(command: str, name: str) -> None:
    assert name_of(command) == name


def test_the_same_program_twice_has_two_names() -> None:
    found = services_from(["mlflow ui", "mlflow ui -p $PORT", "tensorboard"], "runs")
    assert [service.name for service in found] == ["mlflow", "mlflow-2", "tensorboard"]
    assert found[2] == Service("tensorboard", logdir="runs")


def test_tensorboard_gets_its_folder_as_a_word_and_never_as_shell_text() -> None:
    logdir = "$(touch /tmp/x) it's"
    argv = argv_of(Service("tensorboard", logdir=logdir))
    assert argv[-2:] == ["--logdir", logdir]
    assert logdir not in argv[2]


def test_tensorboard_with_words_of_its_own_is_run_as_typed() -> None:
    [service] = services_from(["tensorboard --logdir x --port $PORT"], None)
    assert argv_of(service) == ["/bin/sh", "-c", "tensorboard --logdir x --port $PORT"]


@pytest.mark.parametrize(
    ("services", "logdir"),
    [([""], None), (["A=b"], None), ([], "runs"), (["mlflow ui"], "runs"), (["a\0b"], None)],
)
def test_what_cannot_be_is_refused(services: list[str], logdir: str | None) -> None:
    with pytest.raises(UsageError):
        services_from(services, logdir)


@pytest.mark.parametrize("typed", ["tensorbord", "TensorBoard", "tensor-board", "tensorboards"])
def test_a_service_that_is_almost_known_by_name_is_asked_back(typed: str) -> None:
    with pytest.raises(UsageError, match="did you mean tensorboard"):
        services_from([typed], None)


def test_there_are_not_too_many() -> None:
    with pytest.raises(UsageError, match="up to 10"):
        services_from(["true"] * 11, None)


def test_words_that_are_not_utf_8_arrive_as_they_are() -> None:
    [service] = services_from(["serve \udcff"], None)
    assert orders_of([service]) == [{"name": "serve", "argv": ["/bin/sh", "-c", "serve \udcff"]}]


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ("", ""),
        ("Serving HTTP on 127.0.0.1 port 8000 (http://127.0.0.1:8000/) ...", ""),
        ("TensorBoard at http://127.0.0.1:8000/ (Press CTRL+C to quit)", ""),
        ("at http://localhost:9999/lab?token=no", ""),
        ("    http://localhost:8000/lab?token=ab12\n or http://h:8000/tree", "/lab?token=ab12"),
        ("open http://[::1]:8000/app/.", "/app/."),
        ("http://localhost:8000/lab?token=...\n http://127.0.0.1:8000/lab?token=...", "/lab"),
    ],
)
def test_where_to_look_is_found_in_what_it_says(output: str, path: str) -> None:
    assert path_in(output, 8000) == path
