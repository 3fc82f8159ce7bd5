"""What the launcher of ranks is asked and tells, of flatout.schema.ranks; whole launches are in tests/e2e."""

import pytest

from flatout.ranks import launcher
from flatout.schema.ranks import (
    FailureKind,
    LaunchEnd,
    RankFailure,
    RankLaunch,
    read_end,
    read_launch,
    write_end,
    write_launch,
)

TWO = RankLaunch(ranks=1, nodes=2, endpoint="127.0.0.1:1", job="x", command=("python", "train.py"))


def test_what_is_asked_is_read_as_it_was_written(tmp_path):
    launch = RankLaunch(ranks=2, nodes=1, endpoint="", job="x", command=("python", "train.py", "ä"))
    write_launch(launch, tmp_path / "launch.json")
    assert read_launch(tmp_path / "launch.json") == launch


def test_the_end_is_read_as_it_was_written(tmp_path):
    failure = RankFailure(kind=FailureKind.GONE, host="host2")
    end = LaunchEnd(exit_code=1, first=3, exit_codes={3: -9, 2: 1}, elsewhere=(failure,), error="why")
    write_end(end, tmp_path / "ended.json")
    assert read_end(tmp_path / "ended.json") == end


@pytest.fixture
def asked(monkeypatch):
    """What torch's agent is asked; it cannot host the meeting place, which another launcher of this machine does."""
    found = []

    def ended(config, command):
        found.append(config)
        if config.rdzv_configs["is_host"]:
            raise launcher.RendezvousConnectionError("in use")
        return LaunchEnd(exit_code=0)

    monkeypatch.setattr(launcher, "_ended", ended)
    return found


def test_a_second_launcher_of_a_machine_takes_the_meeting_place_of_the_first(asked, tmp_path):
    assert launcher._ended_among_hosts(TWO, tmp_path, "127.0.0.1").exit_code == 0
    assert [one.rdzv_configs["is_host"] for one in asked] == [True, False]


def test_ranks_that_have_been_started_are_not_started_again(asked, tmp_path):
    (tmp_path / "logs" / "x" / "attempt_0").mkdir(parents=True)
    end = launcher._ended_among_hosts(TWO, tmp_path, "127.0.0.1")
    assert "RendezvousConnectionError" in end.error
    assert len(asked) == 1
