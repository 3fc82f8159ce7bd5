"""Whether this is the main thread, in which scripts draw random numbers.

Random streams belong to the process. What looks at samples puts them back to where they stood, which takes from the
main thread what it has drawn meanwhile: so a loader that another thread reads is left to the script.
"""

import threading

__all__ = ["off_main_thread"]


def off_main_thread() -> bool:
    """Return whether another thread than the main one asks."""
    return threading.get_ident() != threading.main_thread().ident
