"""Apply fixes in the training process: those of the order at once, those of its arms ready to be switched on."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flatout.fixes.core.catalog import find_arm
from flatout.fixes.core.site import Site
from flatout.schema.trial import Selection

if TYPE_CHECKING:
    from flatout.probe.core.seams import Seams
    from flatout.probe.model.modules import ModuleWatch

__all__ = ["install_fix", "install_fixes"]


def install_fix(selection: Selection, seams: "Seams", modules: "ModuleWatch", purpose: str = "run") -> Site:
    """Install the fix that `selection` names, switched off; one that cannot be installed carries its failure.

    `purpose` is the mode of the order: what the script is run for.
    """
    site = Site(selection, seams, modules, purpose)
    fix = find_arm(selection.fix)
    if fix is None:
        site.failure = f"there is no fix {selection.fix!r}"
        return site
    try:
        fix.patch(site, **dict(selection.settings))
    except Exception as error:
        site.fail(error)
    return site


def install_fixes(
    selections: Iterable[Selection], seams: "Seams", modules: "ModuleWatch", purpose: str = "run"
) -> list[Site]:
    """Install all of `selections` in order and switch them on."""
    sites = []
    for selection in selections:
        site = install_fix(selection, seams, modules, purpose)
        site.enable()
        sites.append(site)
    return sites
