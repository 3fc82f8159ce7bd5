"""Every kernel is held against its original twice: done by compiled code, and by Pillow and torch alone."""

import pytest

from flatout.native import native, pixels
from flatout.pipeline.compile.kernels import color


@pytest.fixture(params=["compiled", "plain"], scope="module", autouse=True)
def code(request):
    if request.param == "compiled":
        if not native.available():
            pytest.skip("flatout was installed without a C compiler")
        yield request.param
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", None)
        patch.setattr(pixels, "_copy", lambda: None)
        forget()
        yield request.param
    forget()


def forget() -> None:
    """Let it be found out anew whether compiled code does as Pillow."""
    native._pillows_way.cache_clear()
    color._compiled_as_pillow.cache_clear()
