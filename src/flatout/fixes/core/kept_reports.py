"""What fixes that keep things tell of them, through their site."""

from typing import TYPE_CHECKING

from flatout.fixes.core.site import say

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site
    from flatout.kept.reports import Reports

__all__ = ["reports_of"]


def reports_of(site: "Site", on_change: str) -> "Reports":
    """Return who is told why nothing is kept, and that what was kept is wrong: the fix is off from then on."""
    from flatout.kept.reports import Reports

    def failed(reason: str) -> None:
        say(site, reason)
        site.fail(reason)

    return Reports(site.stand_back, failed, on_change)
