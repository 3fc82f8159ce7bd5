"""Threads beside this one that may run a script's code, and so change its data set while it is looked at."""

import sys
import threading
from types import FrameType

__all__ = ["other_threads_act"]

_OWN = "flatout-"
_OWN_THAT_READ = ("flatout-samples", "flatout-steps", "flatout-objects")  # samples, as the script's code makes them
_WAITING = frozenset(  # modules in the stack of a thread that has nothing to do, or looks after itself alone
    {
        "concurrent.futures.thread",
        "multiprocessing.connection",
        "multiprocessing.queues",  # which hands on what is put into a queue, such as the numbers of samples for workers
        "queue",
        "selectors",
        "threading",
        "torch.utils.data._utils.pin_memory",
    }
)
_LIBRARIES = frozenset({"tqdm", "tensorboard", "wandb"})  # whose threads look after bars and files of their own
_FSSPEC = "fsspecIO"  # the loop of events in which fsspec reads and writes, and nothing else runs


def other_threads_act() -> bool:
    """Return whether any thread but this one may run code of the script: threads of C code are not known to Python.

    A thread is harmless that is flatout's own and does not make samples, or in whose stack is nothing but what waits
    in Python's library or what belongs to a library's own thread. One that waits for work gets none while this
    thread does something else, since whoever hands it on would be such a thread. A timer calls what the script gave.
    """
    frames = sys._current_frames()
    here = threading.get_ident()
    return any(_acts(one, frames.get(one.ident or 0)) for one in threading.enumerate() if one.ident != here)


def _acts(thread: threading.Thread, frame: FrameType | None) -> bool:
    own = thread.name.startswith(_OWN) and not thread.name.startswith(_OWN_THAT_READ)
    if own or thread.name == _FSSPEC:
        return False
    if frame is None or isinstance(thread, threading.Timer):
        return True
    innermost = frame.f_code.co_name
    if innermost == "run" or "bootstrap" in innermost:  # a function of C runs, or none has begun
        return True
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module not in _WAITING and module.partition(".")[0] not in _LIBRARIES:
            return True
        frame = frame.f_back
    return False
