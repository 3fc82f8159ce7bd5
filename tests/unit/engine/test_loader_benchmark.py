"""What the parent makes of the parts of a loader benchmark; the whole is tested in tests/e2e."""

from flatout.engine.loader_benchmark import LogTail


def test_a_log_is_read_on_from_where_it_was_read_to(tmp_path):
    tail = LogTail(tmp_path / "output.log")
    assert tail.read() == b""
    (tmp_path / "output.log").write_bytes(b"one\n")
    assert tail.read() == b"one\n"
    assert tail.read() == b""
    with (tmp_path / "output.log").open("ab") as file:
        file.write(b"two\n")
    assert tail.read() == b"two\n"
