"""Every kernel is held against its original twice: done by compiled code, and by Pillow and torch alone."""

import pytest

from flatout.pipeline.kernels import native


@pytest.fixture(params=["compiled", "plain"], scope="module", autouse=True)
def code(request):
    if request.param == "compiled":
        if not native.available():
            pytest.skip("flatout was installed without a C compiler")
        yield request.param
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", None)
        native._pillows_way.cache_clear()
        yield request.param
    native._pillows_way.cache_clear()
