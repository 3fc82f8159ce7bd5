"""Who asks for Python's garbage collector. Collections that nobody asks for fall on whatever line makes objects.

It stands apart from `collector`: a sample of lines that lands there is our work, one in this wrapper the script's.
"""

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import is_user_file

__all__ = ["CollectCalls"]


class CollectCalls:
    """Knows while `gc.collect` runs in one thread, and whether the user's own code called it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.thread = 0
        self.asked = False
        self.by_user = False

    def install(self, seams: Seams) -> None:
        """Watch calls of `gc.collect`."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def collect(*args: Any, **kwargs: Any) -> Any:
                hits.count += 1
                if get_ident() != self.thread:
                    return original(*args, **kwargs)
                self.asked, self.by_user = True, is_user_file(sys._getframe(1).f_code.co_filename)
                try:
                    return original(*args, **kwargs)
                finally:
                    self.asked = self.by_user = False

            return collect

        seams.wrap("gc:collect", make)
