"""How far an executor's calls are, as people see it."""

import io

from towline.functions.progress import CallProgress, ProgressLines, progress_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_written_now_and_then_and_at_the_end() -> None:
    now, stream = [0.0], io.StringIO()
    progress = CallProgress(lambda: ProgressLines("workers", stream, lambda: now[0]))
    progress.came(100)
    progress.went(10, 0)
    assert stream.getvalue() == ""
    now[0] = 11.0
    progress.went(10, 2)
    assert stream.getvalue() == "workers: 20 of 100 done, 2 of them failed\n"
    progress.went(80, 0)
    assert stream.getvalue().endswith("workers: 100 of 100 done, 2 of them failed\n")
    # What comes later is counted anew.
    progress.came(1)
    progress.went(1, 0)
    assert stream.getvalue().endswith("\nworkers: 1 of 1 done\n")


def test_a_terminal_has_a_bar_and_a_file_has_lines() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = progress_of("workers", stream)
        progress.came(4)
        progress.went(4, 1)
    assert "4/4" in terminal.getvalue() and "1 failed" in terminal.getvalue()
    assert file.getvalue() == "workers: 4 of 4 done, 1 of them failed\n"
