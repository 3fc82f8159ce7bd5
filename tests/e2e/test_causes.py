"""Causes that only a deep run sees, in scripts of their own: padding, work that is cropped away."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find

PADDED = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 64, batch_first=True)
        self.head = nn.Linear(64, 5)
    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0].mean(1))

def collate(samples):
    longest = {longest}
    rows = [row + [0] * (longest - len(row)) for row, _ in samples]  # PADS
    return torch.tensor(rows), torch.tensor([label for _, label in samples])

data = [([7] * (5 + i % 20), i % 5) for i in range(256)]
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    for tokens, labels in torch.utils.data.DataLoader(data, batch_size=16, collate_fn=collate):
        loss = nn.functional.cross_entropy(model(tokens), labels)  # CALLED
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CROPPED = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image

class ColorJitter:
    __module__ = "torchvision.transforms.transforms"
    def __call__(self, image):
        return (image * 1.2).clamp(0, 1).pow(0.9).sub(0.1).sin()

class RandomCrop:
    __module__ = "torchvision.transforms.transforms"
    def __call__(self, image):
        return image[:, 10:42, 10:42].clone()

class Images(torch.utils.data.Dataset):
    def __init__(self):
        self.images, self.transform = torch.rand(32, 3, 256, 256), Compose([{order}])
    def __len__(self):
        return 128
    def __getitem__(self, index):
        return self.transform(self.images[index % 32]), index % 10

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(Images(), batch_size=8)  # MADE
while True:
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def diagnosed(flatout, script, *, workers=0, loads=True):
    flatout.write(script)
    ended = flatout.diagnose("train.py", steps=40)
    assert ended.code == 0, ended.err
    reading = {f"worker {number}" for number in range(workers)} or ({"reading"} if loads else set())
    assert {span.lane for span in ended.run.causes.timeline} == {"steps", "training thread", *reading}
    return {found.code: found for found in find(ended.run, account(ended.run))}


def named(flatout, script, code, times=3):
    """Return a finding that is measured in a few steps: on a machine at its limit that may say nothing once."""
    every = (diagnosed(flatout, script).get(code) for _ in range(times))
    return next(found for found in every if found is not None)


@pytest.mark.parametrize(
    ("longest", "found"),
    [
        pytest.param("64", True, id="all to one length"),
        pytest.param("max(len(row) for row, _ in samples)", False, id="to the longest of the batch"),
    ],
)
@pytest.mark.full
def test_padding_that_a_recurrent_layer_computes_is_found_at_the_line_that_pads(flatout, longest, found):
    script = PADDED.replace("{longest}", longest)
    codes = diagnosed(flatout, script)
    assert ("CO009" in codes) is found
    if found:
        padded = codes["CO009"]
        assert script.splitlines()[padded.location.line - 1].endswith("# PADS")
        assert "by the padding_idx" in padded.message
        assert "the model called in train.py:26" in padded.message
        assert "pad each batch to its own longest row, for the same results" in padded.message


@pytest.mark.parametrize(
    ("order", "found"),
    [pytest.param("ColorJitter(), RandomCrop()", True), pytest.param("RandomCrop(), ColorJitter()", False)],
)
@pytest.mark.full
def test_work_on_pixels_that_are_cropped_away_is_found(flatout, order, found):
    script = CROPPED.replace("{order}", order)
    codes = diagnosed(flatout, script)
    assert ("IN014" in codes) is found
    if found:
        assert script.splitlines()[codes["IN014"].location.line - 1].endswith("# MADE")
        assert "ColorJitter before RandomCrop, which keeps 1.6%" in codes["IN014"].message


@pytest.mark.full
def test_a_loader_made_anew_for_each_epoch_is_known_by_its_dataset(flatout):
    """It is gone as soon as the loop has its iterator."""
    script = CROPPED.replace("{order}", "ColorJitter(), RandomCrop()")
    script = script.replace("loader = torch.utils.data.DataLoader(Images(), batch_size=8)  # MADE", "images = Images()")
    script = script.replace("in loader:", "in torch.utils.data.DataLoader(images, batch_size=8):  # MADE")
    script = script.replace("for images, labels", "for x, labels").replace("model(images)", "model(x)")
    codes = diagnosed(flatout, script)
    assert script.splitlines()[codes["IN014"].location.line - 1].endswith("# MADE")


COUNTED = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,)))
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hits = 0
while True:
    for x, y in torch.utils.data.DataLoader(data, batch_size=128):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += ({again}.argmax(1) == y).sum().item()  # COUNTED
"""


@pytest.mark.parametrize(("again", "found"), [pytest.param("model(x)", True), pytest.param("logits", False)])
@pytest.mark.full
def test_a_second_pass_that_only_counts_hits_is_found_at_its_line(flatout, again, found):
    script = COUNTED.replace("{again}", again)
    codes = diagnosed(flatout, script)
    assert ("CO014" in codes) is found
    if found:
        assert script.splitlines()[codes["CO014"].location.line - 1].endswith("# COUNTED")


SLOW_FORWARD = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
roads = (torch.rand(300, 300) < 0.1).float()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(32, 16), nn.Linear(16, 1)

    def forward(self, x):
        h = {forward}  # HERE
        return self.out(h)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
spread, batches = torch.matrix_power(roads / 30, 3), torch.randn(64, 300, 32)
while True:
    for x in torch.utils.data.DataLoader(batches, batch_size=None):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.alone
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("code", "slow", "quick"),
    [
        ("CO019", "torch.matrix_power(roads / 30, 3) @ self.first(x)", "spread @ self.first(x)"),
        (
            "CO020",
            "self.first(x) / x.expand(20, 300, 32).norm(dim=0)[:, :1]",
            "self.first(x) / x.expand(20, 300, 32).square().sum(0).sqrt()[:, :1]",
        ),
    ],
)
def test_work_that_a_forward_pass_could_be_spared_is_found_at_its_line(flatout, code, slow, quick):
    script = SLOW_FORWARD.replace("{forward}", slow)
    codes = diagnosed(flatout, script)
    assert script.splitlines()[codes[code].location.line - 1].endswith("# HERE")
    assert code not in diagnosed(flatout, SLOW_FORWARD.replace("{forward}", quick))


UNTRAINED = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
words, head = nn.Embedding(60_000, 64), nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
model = nn.Sequential(words, head)
words.requires_grad_({asks})
optimizer = torch.optim.SGD({trained}.parameters(), lr=0.01)
while True:
    for x in torch.utils.data.DataLoader(torch.randint(0, 60_000, (64, 40)), batch_size=8):
        loss = model(x).square().mean()  # HERE
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.full
def test_gradients_that_no_optimizer_reads_are_found_where_the_model_is_called(flatout):
    script = UNTRAINED.format(asks=True, trained="head")
    found = named(flatout, script, "CO022")
    assert script.splitlines()[found.location.line - 1].endswith("# HERE")
    assert "14.6 MiB, 100% of all, most of them of `0.weight`" in found.message
    assert "CO022" not in diagnosed(flatout, UNTRAINED.format(asks=False, trained="head"))
    assert "CO022" not in diagnosed(flatout, UNTRAINED.format(asks=True, trained="model"))


LEFT = "The operator 'aten::linalg_svd' is not currently supported on the MPS backend and will fall back to run on the"


@pytest.mark.full
def test_an_operation_that_torch_says_is_left_to_the_cpu_is_told_at_its_line(flatout):
    """No such device here: the script says it in torch's words, through which torch's C++ says it, too."""
    said = f'__import__("warnings").warn("{LEFT} CPU.")'
    work = "self.first(x) + torch.linalg.svdvals(spread)[:16]"
    script = SLOW_FORWARD.replace("{forward}", f"({said}, {work})[1]")
    found = diagnosed(flatout, script)["CO021"]
    assert script.splitlines()[found.location.line - 1].endswith("# HERE")
    assert "MPS leaves to the CPU: aten::linalg_svd" in found.message
    assert "CO021" not in diagnosed(flatout, SLOW_FORWARD.replace("{forward}", work))


OPENED = """
import ssl
import time
import torch

class Streamed(torch.utils.data.IterableDataset):
    opened = False
    def __iter__(self):
        if not ({keep} and self.opened):
            time.sleep(0.2)
        self.opened = True
        return iter([(torch.zeros(4), torch.zeros(1))] * 80)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Streamed(), batch_size=8, num_workers=1, persistent_workers=True)
while True:
    for x, y in loader:  # ASKED
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)  # a worker takes some 3 ms to wake up on a slow machine
"""


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize(("keep", "found"), [(False, True), (True, False)])
def test_a_first_batch_that_all_epochs_wait_for_is_found_at_the_loop(flatout, keep, found):
    script = OPENED.replace("{keep}", str(keep))
    flatout.write(script)
    ended = flatout.diagnose("train.py", steps=80)
    codes = {each.code: each for each in find(ended.run, account(ended.run))}
    assert ("IN016" in codes) is found
    if found:
        assert script.splitlines()[codes["IN016"].location.line - 1].endswith("# ASKED")


CONNECTING = """
import ssl
import torch

class Remote(torch.utils.data.Dataset):
    context = None
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if self.context is None or {anew}:
            self.context = ssl.create_default_context()  # CONNECTS
        return torch.randn(3, 64, 64).mean((1, 2)), torch.zeros(1)

torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Remote(), batch_size=2)
while True:
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.full
def test_what_a_connection_needs_made_for_every_sample_is_found_at_its_line(flatout, anew):
    script = CONNECTING.replace("{anew}", str(anew))
    codes = diagnosed(flatout, script)
    assert ("IN017" in codes) is anew
    if anew:
        assert script.splitlines()[codes["IN017"].location.line - 1].endswith("# CONNECTS")


REMOTE = """
import http.client
import random
import torch
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

class Piece(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        connection = http.client.HTTPConnection("127.0.0.1", {port})
        connection.request("GET", "/samples", headers={"Range": f"bytes={start}-{end - 1}"})
        return connection.getresponse().read()  # READS

class Store(AbstractFileSystem):
    def info(self, path, **kwargs):
        return {"name": path, "size": 2**28, "type": "file"}
    def _open(self, path, mode="rb", block_size=None, cache_options=None, **kwargs):
        return Piece(self, path, mode, block_size or "default", cache_options=cache_options, **kwargs)

class Samples(torch.utils.data.Dataset):
    def __init__(self):
        self.file = Store().open("samples"{how})
    def __len__(self):
        return 256
    def __getitem__(self, index):
        self.file.seek(index * 2**20)
        return torch.frombuffer(bytearray(self.file.read(4096)), dtype=torch.uint8).float()  # READS

torch.set_num_threads(1)
model = torch.nn.Linear(4096, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
if __name__ == "__main__":
    while True:
        for x in torch.utils.data.DataLoader(Samples(), batch_size=4, shuffle=True, num_workers={workers}):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


@pytest.fixture
def store():
    """Serve ranges of a file of 256 MiB; yield the port."""

    class Ranges(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", -1

        def do_GET(self):
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
            self.send_response(206)
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            self.wfile.write(bytes(last - first + 1))

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(("how", "workers", "found"), [("", 0, True), ("", 2, True), (", block_size=4096", 0, False)])
@pytest.mark.full
def test_bytes_from_the_network_that_nobody_reads_are_found_at_the_line_that_reads(flatout, store, how, workers, found):
    script = REMOTE.replace("{port}", str(store)).replace("{how}", how).replace("{workers}", str(workers))
    codes = diagnosed(flatout, script, workers=workers)
    assert ("IN018" in codes) is found
    if found:
        assert script.splitlines()[codes["IN018"].location.line - 1].endswith("# READS")
        assert codes["IN018"].evidence[0].value > 10 * codes["IN018"].evidence[1].value


DOUBLE = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).to(torch.{dtype})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    x = torch.rand(256, 512, dtype=torch.{dtype})
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.full
def test_what_float64_costs_is_timed_on_a_copy_of_the_model(flatout):
    found = diagnosed(flatout, DOUBLE.replace("{dtype}", "float64"), loads=False)["CO002"]
    assert re.search(
        r"Convert model and data to float32 once: a pass then takes \d+% of its time \(n=\d\)\.", found.message
    )
    assert [each.name for each in found.evidence[-2:]] == ["one pass in float64", "in float32"]
    assert "CO002" not in diagnosed(flatout, DOUBLE.replace("{dtype}", "float32"), loads=False)


THREADS = """
import time
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((8,), float(index)) * torch.get_num_threads()

def several(worker_id):
    torch.set_num_threads({threads})

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, worker_init_fn=several)
while True:
    for x in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("threads", "tried"), [(3, True), (1, False)])
@pytest.mark.full
def test_workers_with_several_threads_make_batches_with_one_in_turn(flatout, threads, tried):
    flatout.write(THREADS.replace("{threads}", str(threads)))
    ended = flatout.diagnose("train.py", steps=150)
    assert ended.code == 0, ended.err
    assert {worker.torch_threads for worker in ended.run.workers} == {threads}
    assert len(ended.run.workers) == 2
    for worker in ended.run.workers:
        assert (worker.one_thread.n > 0) is tried
        assert worker.one_thread.several_s >= 0.02 * tried
        assert worker.one_thread.cpu_s < 0.02


PILED = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.rand(64, 64))
while True:
    for (x,) in torch.utils.data.DataLoader(data, batch_size=8):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    errors = []
    for (x,) in torch.utils.data.DataLoader(data, batch_size=2):
        errors.append(net(x).square().mean())
    print(torch.stack(errors).mean().item())
"""


@pytest.mark.full
def test_graphs_that_pile_up_in_a_validation_are_counted(flatout):
    flatout.write(PILED)
    ended = flatout.diagnose("train.py", steps=40)
    assert ended.code == 0, ended.err
    seen = ended.run.causes.unused_graphs
    assert (seen.model, seen.n >= 1) == ("Sequential", True)
    assert seen.piled in (
        24,
        25,
    )  # of 32: the first eight might be a step's; the next epoch begins before the list is gone


TIDIED = """
import gc
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
kept = [[] for _ in range(1_000_000)]
net = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.rand(256, 64))
loader = torch.utils.data.DataLoader(data, batch_size=16)
while True:
    for (x,) in loader:
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gc.collect()  # ASKS
"""


@pytest.mark.full
def test_collecting_between_epochs_is_found_at_the_line_that_asks_for_it(flatout):
    found = diagnosed(flatout, TIDIED)["EP004"]
    assert TIDIED.splitlines()[found.location.line - 1].endswith("# ASKS")
    assert "of it in Python's garbage collector. Remove the call that requests it." in found.message
