"""Files on a disk of this machine."""

import os

from flatout.pipeline.read.objects.object_reads import ObjectAnswer, ObjectRequest, not_whole, refused, unreachable
from flatout.pipeline.read.objects.object_urls import location_of

__all__ = ["LocalReader"]


class LocalReader:
    """Reads files."""

    def read(self, request: ObjectRequest) -> ObjectAnswer:
        """Return a file.

        Raises:
            BadObject: it is missing, may not be read, does not come whole, or is written meanwhile.
        """
        try:
            with open(location_of(request.url).key, "rb", buffering=0) as file:
                before = _identity(os.fstat(file.fileno()))
                if request.start is None:
                    data = file.read()
                else:
                    data = os.pread(file.fileno(), (request.stop or 0) - request.start, request.start)
                found = os.fstat(file.fileno())
        except (FileNotFoundError, PermissionError) as error:
            raise refused(request.url, error) from error
        except OSError as error:
            raise unreachable(request.url, error, "Check the path, and the disk.") from error
        wanted = found.st_size if request.start is None else (request.stop or 0) - request.start
        if len(data) != wanted or _identity(found) != before:
            raise not_whole(request, len(data))
        return ObjectAnswer(data, before)


def _identity(found: os.stat_result) -> str:
    return f"size={found.st_size} mtime={found.st_mtime_ns} ino={found.st_ino}"
