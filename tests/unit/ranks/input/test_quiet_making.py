"""What samples print, log and write is held back while a rank makes them for all."""

import contextlib
import io
import logging
import sys
import threading
import warnings

import pytest

from flatout.probe.core.seams import Seams
from flatout.ranks.input.quiet_making import QuietMaking
from flatout.ranks.local_rows import HERE


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(HERE, "main", threading.get_ident())
    seams = Seams()
    yield QuietMaking(seams)
    seams.undo()


def test_nothing_gets_out_and_that_is_told(quiet, caplog):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), quiet.quietly():
        assert HERE.inside
        print("unheard")
        sys.stdout.writelines(["un", "heard"])
        sys.stdout.buffer.write(b"unheard")
        logging.getLogger("samples").error("unheard")
    assert not HERE.inside
    assert (out.getvalue(), caplog.text, quiet.printed) == ("", "", True)
    with quiet.quietly():
        pass
    assert not quiet.printed


def test_other_threads_print_as_ever(quiet):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), quiet.quietly():
        thread = threading.Thread(target=print, args=("heard",))
        thread.start()
        thread.join()
    assert (out.getvalue(), quiet.printed) == ("heard\n", False)


def test_a_warning_that_was_held_back_is_shown_when_it_comes_again(quiet):
    def warn():
        warnings.warn("odd", stacklevel=1)

    err = io.StringIO()
    with contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warnings, "showwarning", lambda message, *_: sys.stderr.write(f"{message}\n"))
            with quiet.quietly():
                warn()
            assert (err.getvalue(), quiet.printed) == ("", True)
            warn()
            warn()
    assert err.getvalue() == "odd\n"


def test_files_are_not_written(quiet, tmp_path):
    there = tmp_path / "there.txt"
    there.write_text("as it was")
    with quiet.quietly():
        assert there.read_text() == "as it was"
        for act in (lambda: there.open("a"), there.unlink, lambda: (tmp_path / "new").mkdir()):
            with pytest.raises(PermissionError):
                act()
        with open("/dev/null", "w"):
            pass
    assert quiet.tried.startswith(f"writes to {tmp_path}/new")
    assert [one.name for one in tmp_path.iterdir()] == ["there.txt"]
    there.unlink()
