"""The launcher of ranks, and what it is asked, of flatout.schema.ranks; whole launches are in tests/e2e."""

from flatout.ranks.launcher import own_address
from flatout.schema.ranks import RankLaunch, read_launch, write_launch


def test_what_is_asked_is_read_as_it_was_written(tmp_path):
    launch = RankLaunch(ranks=2, nodes=1, endpoint="", job="x", command=("python", "train.py", "ä"))
    write_launch(launch, tmp_path / "launch.json")
    assert read_launch(tmp_path / "launch.json") == launch


def test_the_own_address_is_the_one_that_the_meeting_place_sees():
    assert own_address("127.0.0.1:29400") == ("127.0.0.1", "lo")
    assert own_address("no.such.host.invalid:29400") == own_address("nonsense") == ("", "")
