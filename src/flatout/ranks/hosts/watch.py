"""The end of a training on several machines: when it fails on one, it ends on all, and each can say why.

A rank that waits for another one in an exchange would wait for half an hour. So the launcher of each machine hears of
the others (`flatout.ranks.hosts.links`), and ends its own ranks when one of them cannot go on.
"""

import contextlib
import json
import os
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from flatout.ranks.hosts.addresses import split_endpoint
from flatout.ranks.hosts.left_over import end_left_over, end_ranks, wait_for_ranks
from flatout.ranks.hosts.links import HostLinks
from flatout.schema.ranks import (
    END_FILE,
    GROUP_FILE,
    LEAVE_FILE,
    FailureKind,
    LaunchEnd,
    RankFailure,
    RankLaunch,
    write_end,
)

__all__ = ["MEETING_S", "HostWatch", "host_name"]

MEETING_S = 600
"""For so long a machine waits for the others at the beginning."""

_TOLD_AFTER_S = 15.0  # of waiting
_OWN_WORDS_S = 3.0  # for ranks of this machine that fail by themselves, of the same exception: they say it
_WAITING_S = 3.0  # for ranks that wait for others, and end when they are told
_BUSY_S = 60.0
_AGENT_S = 2.0  # for torch's agent to see that its ranks have ended
_LOOK_S = 0.05
_MET_S = 5.0  # for ranks that end at once
_OTHERS_S = 1.0  # for what other machines say when ours has failed
_ONLY_LOST_S = 5.0  # for the reason why the meeting place has gone


class HostWatch:
    """What the launcher of this machine hears of the others, and what it does then."""

    def __init__(self, launch: RankLaunch, address: str, folder: Path) -> None:
        """Watch nothing yet; `folder`: where ranks say that they begin, and where it is told how they have ended."""
        self._launch = launch
        self._folder = folder
        self._links = HostLinks(host_name(), launch.nodes, address, self._take)
        self._failures: list[RankFailure] = []
        self._heard = threading.Event()
        self._over = threading.Event()
        self._met = threading.Event()
        self._ending = False

    def start(self) -> None:
        """Meet the others, and hear them, in threads beside the one that starts ranks."""
        for name in (END_FILE, GROUP_FILE, LEAVE_FILE):  # of an earlier start in this folder
            (self._folder / name).unlink(missing_ok=True)
        for act in (self._follow, self._tell_of_waiting):
            threading.Thread(target=act, daemon=True).start()

    def _follow(self) -> None:
        try:
            number = self._number()
            store = _store(self._launch)
            self._links.meet(store, number)
            if number:
                first = json.loads(store.get("host/0"))["host"]
                _say(f"rank 0, which prints and writes files, is on {first}")
        except (OSError, RuntimeError, ValueError) as error:
            if not self._over.is_set():
                _say(f"the machines cannot hear each other ({error}): one that fails is seen late")
        finally:
            self._met.set()
        self._links.follow()

    def _number(self) -> int:
        """Return which of the machines this is, once all have met: torch's agent has told it to the ranks."""
        while not self._over.is_set():
            with contextlib.suppress(OSError, ValueError):
                return int((self._folder / GROUP_FILE).read_text(encoding="ascii"))
            time.sleep(_LOOK_S)
        raise RuntimeError("no rank has begun")

    def _tell_of_waiting(self) -> None:
        if not self._met.wait(_TOLD_AFTER_S):
            _say(
                f"{host_name()} waits for {self._launch.nodes} machines to meet at {self._launch.endpoint},"
                f" up to {MEETING_S // 60} minutes"
            )

    # -- another machine cannot go on -----------------------------------------------------------------------------

    def _take(self, failure: RankFailure) -> None:
        """Another machine has failed; by the first that does, all ends here."""
        self._failures.append(failure)
        if not self._heard.is_set():
            self._heard.set()
            threading.Thread(target=self._end_here, args=(failure,), daemon=True).start()

    def _end_here(self, failure: RankFailure) -> None:
        own_words = failure.kind is FailureKind.RANK and failure.code > 0
        if self._over.wait(_OWN_WORDS_S if own_words else 0.0):
            return
        self._ending = True
        (self._folder / LEAVE_FILE).touch()
        if not wait_for_ranks(_WAITING_S):
            _say(
                f"the training cannot go on: {failure.host} has failed or cannot be reached; ranks here that are busy"
                f" have {_BUSY_S:.0f} s to finish what they write"
            )
            wait_for_ranks(_BUSY_S)
        end_ranks()
        if not self._over.wait(_AGENT_S):  # it waits for the meeting place, which has gone
            end_left_over()
            write_end(self._ended_by_others(), self._folder / END_FILE)
            os._exit(1)

    def _ended_by_others(self) -> LaunchEnd:
        return LaunchEnd(exit_code=1, elsewhere=tuple(self._failures))

    # -- this machine has ended -----------------------------------------------------------------------------------

    def settle(self, end: LaunchEnd) -> LaunchEnd:
        """Tell the others how the ranks of this machine have ended; return that with what was heard of the others."""
        self._over.set()
        if self._ending:
            found = self._ended_by_others()
        elif end.error:
            self._heard.wait(_ONLY_LOST_S if self._met.is_set() else 0.0)
            found = self._ended_by_others() if self._failures else end
        else:
            found = self._told(end)
        self._links.close()
        return found

    def _told(self, end: LaunchEnd) -> LaunchEnd:
        failure = _failure(end)
        self._met.wait(_MET_S)
        self._links.tell(failure)
        if failure is None and not self._failures:
            return end
        if failure is not None and failure.kind is FailureKind.SIGNAL:  # the others are likely to get it, too
            return end
        self._heard.wait(_OTHERS_S)
        return replace(end, exit_code=end.exit_code or 1, elsewhere=tuple(self._failures))


def host_name() -> str:
    """Return what this machine is called, by SLURM where that has names of its own."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _failure(end: LaunchEnd) -> RankFailure | None:
    """Return what the others are told of how this machine has ended, None where it has ended well."""
    if end.first >= 0:
        return RankFailure(
            kind=FailureKind.RANK, host=host_name(), rank=end.first, code=end.exit_codes.get(end.first, end.exit_code)
        )
    if end.exit_code:
        return RankFailure(kind=FailureKind.SIGNAL, host=host_name(), code=128 - end.exit_code)
    return None


def _store(launch: RankLaunch) -> Any:
    """Return the store at the meeting place, once it is there."""
    import torch

    distributed: Any = torch.distributed  # whose names have no types
    host, port = split_endpoint(launch.endpoint)
    found = distributed.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=MEETING_S))
    return distributed.PrefixStore(f"flatout/{launch.job}", found)


def _say(text: str) -> None:
    os.write(2, f"flatout: {text}\n".encode())
