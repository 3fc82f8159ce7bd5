"""What torch says of operations that a device leaves to the CPU is heard, and shown as ever."""

import importlib.util
import warnings

import pytest

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.seams import Seams
from flatout.probe.system.cpu_fallback import FallbackWatch
from flatout.schema.run import Fallback

ON_MPS = (
    "The operator 'aten::linalg_svd' is not currently supported on the MPS backend and will fall back to run on the "
    "CPU. This may have performance implications. (Triggered internally at aten/src/ATen/mps/MPSFallback.mm:14.)"
)
ON_XPU = "Aten Op fallback from XPU to CPU happens. This may have performance implications."
SCRIPT = """
import warnings


def forward(text):
    x = 1
    warnings.warn(text)  # line 7
    return x
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(SCRIPT)
    spec = importlib.util.spec_from_file_location("model_that_warns", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def watch():
    seams, made = Seams(), FallbackWatch(raise_it)
    made.install(seams)
    yield made
    seams.undo()


@pytest.mark.parametrize(
    ("text", "operation", "device"), [(ON_MPS, "aten::linalg_svd", "MPS"), (ON_XPU, "", "XPU")], ids=["MPS", "XPU"]
)
def test_it_is_heard_with_its_line_and_shown(script, watch, text, operation, device):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert script.forward(text) == 1
    (found,) = watch.facts()
    assert isinstance(found, Fallback)
    assert (found.operation, found.device) == (operation, device)
    assert found.place is not None
    assert (found.place.file, found.place.line, found.place.function) == (script.__file__, 7, "forward")
    assert [str(each.message) for each in shown] == [text]


def test_other_warnings_and_those_that_are_kept_back_are_nothing(script, watch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script.forward(ON_MPS)
        warnings.simplefilter("always")
        with pytest.warns(UserWarning, match="another"):
            script.forward("another operator 'x'")
    assert watch.facts() == ()


def test_one_that_is_an_error_stays_one(script, watch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="fall back"):
            script.forward(ON_MPS)


def test_afterwards_nothing_listens(script):
    before = warnings._showwarnmsg
    seams, made = Seams(), FallbackWatch(raise_it)
    made.install(seams)
    assert warnings._showwarnmsg is not before
    seams.undo()
    assert warnings._showwarnmsg is before


def test_a_script_that_warns_without_end_fills_no_memory(script, watch):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for number in range(100):
            script.forward(ON_MPS)
            script.forward(ON_MPS.replace("svd", f"svd{number}"))
    assert len(watch.facts()) == 32
