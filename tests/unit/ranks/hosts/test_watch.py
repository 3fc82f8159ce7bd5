"""What the launcher of one machine does when it hears of another, and what it tells."""

import threading

import pytest

from flatout.ranks.hosts import watch as module
from flatout.ranks.hosts.watch import HostWatch
from flatout.schema.ranks import END_FILE, LEAVE_FILE, FailureKind, LaunchEnd, RankFailure, RankLaunch, read_end

TWO = RankLaunch(ranks=1, nodes=2, endpoint="host1:1", job="x", command=())
KILLED = RankFailure(kind=FailureKind.RANK, host="host2", rank=1, code=-9)
RAISED = RankFailure(kind=FailureKind.RANK, host="host2", rank=1, code=1)
GONE = RankFailure(kind=FailureKind.GONE, host="host2")
WELL = LaunchEnd(exit_code=0)


class Links:
    def __init__(self):
        self.told, self.closed = [], False

    def tell(self, failure):
        self.told.append(failure)

    def close(self):
        self.closed = True


def wait(watch, patience_s):
    """Wait for ranks of which `busy` times some are not ready to end."""
    watch.did.append(f"{patience_s:.0f} s for ranks")
    watch.busy -= 1
    return watch.busy < 0


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """A watch that has met the others, with what it does to this machine noted in `did`."""
    monkeypatch.setenv("SLURMD_NODENAME", "host1")
    for name in ("_OWN_WORDS_S", "_AGENT_S", "_OTHERS_S", "_ONLY_LOST_S"):
        monkeypatch.setattr(module, name, 0.2)
    found = HostWatch(TWO, "127.0.0.1", tmp_path)
    found._links, found.did, found.gone = Links(), [], threading.Event()
    found._met.set()
    found.busy = 0
    monkeypatch.setattr(module, "wait_for_ranks", lambda patience_s: wait(found, patience_s))
    monkeypatch.setattr(module, "end_ranks", lambda: found.did.append("ranks ended"))
    monkeypatch.setattr(module, "end_left_over", lambda: found.did.append("left over ended"))
    monkeypatch.setattr(module.os, "_exit", lambda code: (found.did.append(f"exit {code}"), found.gone.set()))
    return found


def test_a_good_end_is_told(watch):
    assert watch.settle(WELL) == WELL
    assert watch._links.told == [None]
    assert watch._links.closed


def test_a_rank_that_fails_here_is_told_with_its_machine(watch):
    end = LaunchEnd(exit_code=137, first=0, exit_codes={0: -9})
    assert watch.settle(end) == end
    assert watch._links.told == [RankFailure(kind=FailureKind.RANK, host="host1", rank=0, code=-9)]


def test_what_fails_elsewhere_ends_the_ranks_here_and_is_all_that_is_told(watch, tmp_path):
    watch._take(KILLED)
    while "ranks ended" not in watch.did:
        pass
    assert (tmp_path / LEAVE_FILE).exists()
    found = watch.settle(LaunchEnd(exit_code=143, first=0, exit_codes={0: -15}))  # by our SIGTERM
    assert found == LaunchEnd(exit_code=1, elsewhere=(KILLED,))
    assert watch.did == ["3 s for ranks", "ranks ended"]


def test_an_agent_that_waits_for_a_store_that_has_gone_is_not_waited_for(watch, tmp_path):
    watch._take(GONE)
    assert watch.gone.wait(10)
    assert watch.did == ["3 s for ranks", "ranks ended", "left over ended", "exit 1"]
    assert read_end(tmp_path / END_FILE) == LaunchEnd(exit_code=1, elsewhere=(GONE,))


def test_ranks_that_are_busy_get_a_minute_and_the_user_is_told_at_once(watch, capfd):
    watch.busy = 1
    watch._take(KILLED)
    assert watch.gone.wait(10)
    assert watch.did[:3] == ["3 s for ranks", "60 s for ranks", "ranks ended"]
    assert "host2 has failed or cannot be reached; ranks here that are busy have 60 s" in capfd.readouterr().err


def test_ranks_that_fail_of_the_same_by_themselves_are_left_to_say_it(watch, monkeypatch):
    monkeypatch.setattr(module, "_OWN_WORDS_S", 20.0)
    watch._take(RAISED)
    end = LaunchEnd(exit_code=1, first=0, exit_codes={0: 1})
    found = watch.settle(end)
    assert (found.first, found.exit_code, found.elsewhere) == (0, 1, (RAISED,))
    assert watch.did == []


def test_a_failure_elsewhere_after_a_good_end_here_is_a_failure(watch):
    watch._failures.append(RAISED)
    watch._heard.set()
    assert watch.settle(WELL) == LaunchEnd(exit_code=1, elsewhere=(RAISED,))


def test_a_signal_to_flatout_is_told_to_the_others_and_not_explained_by_them(watch):
    watch._failures.append(GONE)
    end = LaunchEnd(exit_code=143)
    assert watch.settle(end) == end
    assert watch._links.told == [RankFailure(kind=FailureKind.SIGNAL, host="host1", code=-15)]


def test_a_meeting_place_that_has_gone_is_explained_by_the_machine_that_has(watch):
    lost = LaunchEnd(exit_code=70, error="RendezvousConnectionError")
    threading.Timer(0.05, lambda: (watch._failures.append(GONE), watch._heard.set())).start()
    assert watch.settle(lost) == LaunchEnd(exit_code=1, elsewhere=(GONE,))


def test_machines_that_never_met_are_an_error_of_their_own(watch):
    watch._met.clear()
    never = LaunchEnd(exit_code=70, error="RendezvousTimeoutError")
    assert watch.settle(never) == never
    assert watch._links.told == []


def test_the_second_failure_that_is_heard_is_told_too(watch):
    for failure in (KILLED, GONE):
        watch._take(failure)
    assert watch.gone.wait(10)
    assert watch.did.count("ranks ended") == 1
    assert watch._ended_by_others().elsewhere == (KILLED, GONE)


def test_who_waits_for_others_is_told(watch, monkeypatch, capfd):
    watch._met.clear()
    monkeypatch.setattr(module, "_TOLD_AFTER_S", 0.0)
    watch._tell_of_waiting()
    assert capfd.readouterr().err == "flatout: host1 waits for 2 machines to meet at host1:1, up to 10 minutes\n"
