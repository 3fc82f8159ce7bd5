"""Keep the directories of zip and tar archives that are opened again and again.

## What it does

A data set that opens an archive for each sample reads the whole directory each time, for one member. With this fix,
`zipfile.ZipFile` (also below `numpy.load` of an `.npz`) reads the directory of a file twice, and `tarfile` the headers
of an uncompressed archive; after that they are kept in each process, for as long as the file has the number, size and
times that it had. Each opened archive is still an object of its own with a file of its own, in each thread and worker:
its position, its mode, and what `with` closes are those of the script. A member that is asked for by name is a copy;
whoever looks at the list of members gets all of them.

## Why it helps

Opening an archive of 2,000 members of 1 KB, reading one of them and closing it took 76x less CPU time for zip (49 to
161), 134x for tar (109 to 200), 11x for npz (9 to 14; medians and ranges of n=15 pairs in turns in one process, the
file in memory; 2 cores of an AMD EPYC under KVM, beside other programs, Python 3.11). A sample is then still read at
0.40, 0.15 and 0.18 of the speed of an archive that the data set keeps open: that is the faster change, where you may
make it.

## How equal

BITWISE: a member is read from the file, by the library, as before. What a member's entry says is copied for each
archive, so one that the script changes is changed for that archive alone. Before each use the opened file itself is
asked whether it was written or replaced. A directory that was read within three seconds of a write is not kept.

## When it is wrong

A directory takes memory in each process (some 500 bytes a member; at most 400,000 members). Archives that are written
to, compressed tar archives, those read from a stream or by classes derived from these, and files on network file
systems are left alone. Until a list of members is looked at, `vars(archive)` does not have it. HDF5, SQLite and LMDB
files are opened as before: keep one open in each worker, in an attribute that is filled at its first sample.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import Unwritten
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import LineCost, Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "choices", "patch"]

_LEAST_SHARE = 0.02  # of what the sampler saw of the processes that make samples
_ARCHIVES = frozenset({"zipfile", "tarfile"})
_READING = re.compile(  # of a directory: functions of both modules in Python 3.11 to 3.14
    r"^(_RealGetContents|_EndRecData\w*|_decodeExtra|_sanitize_filename|__init__|next|_load|_getmember|getmembers"
    r"|fromtarfile|frombuf|_frombuf|nti|nts|calc_chksums|_proc_\w+|_block|_apply_pax_info|_decode_pax_field|_create_\w+)$"
)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where directories of archives cost time."""
    costs = run.causes.lines if run.causes else ()
    whole = sum(cost.seconds for cost in costs)
    spent = sum(cost.seconds for cost in costs if _opens(cost))
    if whole <= 0 or spent < _LEAST_SHARE * whole:
        return Unfit("no time is spent on directories of zip or tar archives")
    return ({},)


def _opens(cost: LineCost) -> bool:
    return cost.leaf in _ARCHIVES and bool(_READING.match(cost.leaf_function))


def patch(site: "Site") -> None:
    """Let archives have their directories from memory."""
    import tarfile
    import zipfile

    from flatout.kept.known_files import KnownFiles
    from flatout.kept.tar_directories import TarDirectories
    from flatout.kept.zip_directories import ZipDirectories
    from flatout.probe.core.seams import Seams

    files, lists = KnownFiles(site.stand_back), Seams()
    zips = ZipDirectories(files, lambda: site.hit("zip directory"))
    tars = TarDirectories(files, lambda: site.hit("tar directory"))
    seams: list[tuple[type, str, Callable[..., Any]]] = [
        (zipfile.ZipFile, "_RealGetContents", zips.reading),
        (zipfile.ZipFile, "getinfo", zips.finding),
        (zipfile.ZipFile, "namelist", zips.naming),
        (tarfile.TarFile, "_load", tars.loading),
        (tarfile.TarFile, "getmember", tars.finding),
    ]
    for kind, absent in ((zipfile.ZipFile, zips.absent), (tarfile.TarFile, tars.absent)):
        whole = all(callable(vars(kind).get(name)) for owner, name, _ in seams if owner is kind)
        if getattr(kind, "__getattr__", absent) is not absent or not whole:
            site.stand_back(f"{kind.__name__} is not Python's own any more")
            continue
        if not hasattr(kind, "__getattr__"):  # it stays: archives that are open need it when the fix is switched off
            lists.replace(kind, "__getattr__", absent)
        for owner, name, make in seams:
            if owner is kind:
                site.wrap(f"{kind.__module__}:{kind.__name__}.{name}", make, in_workers=True)


FIX = Fix(
    name="kept-directories",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.INPUT, Phase.HOST),
    patch=patch,
    choices=choices,
    addresses=("IN003", "IN008"),
    switchable=True,
    edit=(Unwritten(reason="open the archive once in each worker, at its first sample, and keep it in the data set"),),
)
