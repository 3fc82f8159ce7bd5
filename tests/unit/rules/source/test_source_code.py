"""What the user's own source says about a line."""

import textwrap

import pytest

from flatout.rules.facts.output_calls import is_logging_call, writes_output
from flatout.rules.source.loops import data_loop, in_loop
from flatout.rules.source.source_code import enclosing_function, statement
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost


@pytest.fixture
def frame(tmp_path):
    """Write a script and return the frame of the line that carries the comment `# here`."""

    def write(text, function="f"):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(text))
        number = next(i for i, row in enumerate(path.read_text().splitlines(), 1) if "# here" in row)
        return Frame(str(path), number, function)

    return write


WRITES = [
    "print(loss)",
    "print(f'{step}: {loss.item()}', flush=True)",
    "logger.info('loss %s', loss)",
    "self.logger.debug('x')",
    "logging.getLogger('x').info('y')",
    "writer.add_scalar('loss', loss, step)",
    "self.writer.add_histogram('w', w, step)",
    "wandb.log({'loss': loss})",
    "self.log('loss', loss)",
    "json.dump(history, file)",
    "file.write(json.dumps(row) + '\\n')",
    "plt.savefig('loss.png')",
    "tqdm.write('x')",
    "bar.set_postfix(loss=loss)",
    "csv.writer(file).writerow(row)",
    "os.fsync(file.fileno())",
    "frame.to_csv('log.csv')",
    "Path('x').write_text('y')",
    "log_metrics(step, loss)",
]
COMPUTES = [
    "x = torch.log(y)",
    "x = math.log(y)",
    "x = np.log(y).sum()",
    "correct += (out.argmax(1) == y).sum()",
    "scores = roc_auc_score(labels, outputs)",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "image.save_count += 1",
    "error = compute_error(x)",
    "loss = criterion.error(x)",
    "blueprint(x)",
    "handlers[0](x)",
    "(lambda y: y)(x)",
]


@pytest.mark.parametrize("text", WRITES)
def test_a_line_that_writes_is_told(frame, text):
    assert is_logging_call(frame(f"def f():\n    {text}  # here\n")) is True


@pytest.mark.parametrize("text", COMPUTES)
def test_a_line_that_computes_is_not_taken_for_writing(frame, text):
    assert is_logging_call(frame(f"def f():\n    {text}  # here\n")) is False


def test_the_head_of_a_compound_statement_is_judged_without_its_body(frame):
    assert is_logging_call(frame("def f():\n    if slow(x):  # here\n        print(x)\n")) is False
    assert is_logging_call(frame("def f():\n    with open('x') as file:\n        file.write('y')  # here\n")) is True


def test_a_call_over_several_lines_is_one_statement(frame):
    place = frame("def f():\n    print(\n        'loss',\n        loss,  # here\n    )\n")
    assert is_logging_call(place) is True
    assert statement(place) == "print('loss', loss)"


def test_a_file_that_is_gone_broken_or_too_short_says_nothing(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    for place in (Frame("/nowhere/x.py", 1, "f"), Frame(str(broken), 1, "f"), Frame("<string>", 1, "f")):
        assert is_logging_call(place) is None
        assert statement(place) is None
        assert enclosing_function(place) is None
        assert data_loop(place) is None
        assert not in_loop(place)
    short = tmp_path / "short.py"
    short.write_text("x = 1\n")
    assert statement(Frame(str(short), 99, "f")) is None


def test_what_is_not_a_file_is_not_read(tmp_path):
    assert statement(Frame(str(tmp_path), 1, "")) is None


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("x = 1\n")
    assert statement(Frame(str(path), 1, "")) == "x = 1"
    path.write_text("print(x, y)\n")
    assert statement(Frame(str(path), 1, "")) == "print(x, y)"


def test_writing_is_also_told_by_library_and_by_function_name():
    def cost(leaf="", function="train"):
        stack = (Frame("/nowhere/a.py", 1, function),)
        return LineCost(process="main", phase=Phase.HOST, stack=stack, leaf=leaf)

    assert writes_output(cost(leaf="json"))
    assert writes_output(cost(function="Trainer.log_step"))
    assert not writes_output(cost(function="Trainer.compute_logits"))
    assert not writes_output(cost(leaf="numpy"))
    assert not writes_output(LineCost(process="main", phase=Phase.HOST))


OVER_DATA = [
    "for t in range(x.size(1)):",
    "for t in range(x.shape[1]):",
    "for i in range(len(x)):",
    "for i in range(128):",
    "for i in range(1, x.size(1)):",
    "for t in range(seq_len):",
    "for step in x.unbind(1):",
    "for i, token in enumerate(x.unbind(1)):",
    "for row in rows:",
    "for t in reversed(range(x.size(1))):",
    "while not done:",
]
OVER_THE_MODEL = [
    "for layer in self.layers:",
    "for i, block in enumerate(self.blocks):",
    "for i in range(self.num_layers):",
    "for i in range(len(self.layers)):",
    "for i in range(4):",
    "for a, b in zip(self.down, self.up):",
    "for name, module in self.heads.items():",
    "for _ in range(self.num_steps):",
    "for layer in reversed(self.layers):",
    "for conv, norm in zip(self.convs, self.norms):",
    "for chunk in x.chunk(3, dim=-1):",
    "for feature in features:",
]


@pytest.mark.parametrize("head", OVER_DATA)
def test_a_loop_over_the_data_is_told(frame, head):
    place = frame(
        f"class Net:\n    def forward(self, x, rows, seq_len):\n        {head}\n            x = f(x)  # here\n"
    )
    assert data_loop(place) == 3


@pytest.mark.parametrize("head", OVER_THE_MODEL)
def test_a_loop_over_the_parts_of_a_model_is_healthy(frame, head):
    place = frame(f"class Net:\n    def forward(self, x, features):\n        {head}\n            x = f(x)  # here\n")
    assert data_loop(place) is None


def test_where_a_length_came_from_is_followed(frame):
    over_data = "def forward(self, x):\n    b, k, _ = x.shape\n    for i in range(k):\n        x = f(x)  # here\n"
    over_model = "def forward(self, x):\n    k = self.num_heads\n    for i in range(k):\n        x = f(x)  # here\n"
    assert data_loop(frame(over_data)) == 3
    assert data_loop(frame(over_model)) is None


def test_a_comprehension_over_the_data_is_a_loop(frame):
    assert data_loop(frame("def f(x):\n    return stack([g(x[i]) for i in range(x.size(0))])  # here\n")) == 2
    assert data_loop(frame("def f(self, x):\n    return sum(layer(x) for layer in self.layers)  # here\n")) is None


def test_a_range_over_a_sum_or_an_attribute_is_judged_by_its_parts(frame):
    text = "class Net:\n    def forward(self, x):\n        for i in range({}):\n            x = f(x)  # here\n"
    assert data_loop(frame(text.format("x.size(1) - 1"))) == 3
    assert data_loop(frame(text.format("self.max_len"))) == 3
    assert data_loop(frame(text.format("self.num_layers - 1"))) is None
    assert data_loop(frame(text.format("f()"))) is None
    assert data_loop(frame(text.format("x.numel()"))) == 3


def test_what_a_name_stands_for_is_followed_to_its_source(frame):
    text = "def forward(self, x):\n    parts = {}\n    for part in parts:\n        f(part)  # here\n"
    assert data_loop(frame(text.format("x.unbind(1)"))) == 3
    assert data_loop(frame(text.format("self.parts"))) is None
    assert data_loop(frame(text.format("x"))) is None


def test_a_loop_head_on_a_line_of_its_own_is_outside_the_loop(frame):
    assert data_loop(frame("def f(x):\n    for t in range(x.size(1)):  # here\n        g(t)\n")) is None
    assert data_loop(frame("def f(x):\n    for t in range(x.size(1)): g(t)  # here\n")) == 2


def test_lines_inside_match_cases_are_found(frame):
    text = "def f(x):\n    match x:\n        case 1:\n            print(x)  # here\n"
    assert is_logging_call(frame(text)) is True


def test_the_head_of_a_try_says_nothing(frame):
    assert statement(frame("try:  # here\n    f()\nexcept OSError:\n    pass\n")) == "pass"


def test_a_very_large_file_is_not_parsed(tmp_path):
    path = tmp_path / "generated.py"
    path.write_text("x = 1\n" * 400_000)
    assert statement(Frame(str(path), 1, "")) is None


def test_the_loop_of_a_caller_is_not_the_loop_of_a_function(frame):
    text = "def train(rows):\n    for row in rows:\n        def f():\n            g()  # here\n        f()\n"
    assert data_loop(frame(text)) is None


def test_the_training_loop_is_not_a_loop_inside_the_step(frame):
    assert not in_loop(frame("for x, y in loader:\n    loss = criterion(model(x), y)  # here\n    loss.backward()\n"))
    assert not in_loop(frame("for i in range(n):\n    loss = f(i)  # here\n    loss.backward()\n    opt.step()\n"))
    assert not in_loop(frame("while True:\n    loss = f(i)  # here\n"))
    nested = "for x, y in loader:\n    for i in range(64):\n        loss += pair(x[i])  # here\n    loss.backward()\n"
    assert in_loop(frame(nested))


def test_a_comprehension_inside_the_step_is_a_loop(frame):
    assert in_loop(frame("for x, y in loader:\n    scores = [one(v) for v in x]  # here\n    loss.backward()\n"))


def test_a_range_without_an_end_is_no_loop_over_the_data(frame):
    text = "class Net:\n    def forward(self, x):\n        for i in range():\n            x = f(x)  # here\n"
    assert data_loop(frame(text)) is None


def test_the_head_of_a_with_statement_is_what_it_opens(frame):
    assert is_logging_call(frame("with console.status('x') as bar:  # here\n    print(bar)\n")) is False
    assert is_logging_call(frame("with logger.info('x') as bar:  # here\n    f(bar)\n")) is True


def test_a_loop_that_asks_for_gradients_and_changes_weights_by_hand_is_the_training_loop(frame):
    text = (
        "for i in range(0, len(x), 64):\n    loss = f(x[i])  # here\n"
        "    grads = torch.autograd.grad(loss, weights)\n{}    update(weights, grads)\n"
    )
    assert not in_loop(frame(text.format("    with torch.no_grad():\n    ")))
    assert in_loop(frame(text.format("")))  # rows of a Jacobian, say


def test_rows_that_an_argument_names_are_data(frame):
    text = "class Net:\n    def forward(self, x, {0}):\n        for one in {0}:\n            out.append({1})  # here\n"
    assert data_loop(frame(text.format("neighbours", "x[one].mean(0)"))) == 3
    assert data_loop(frame(text.format("neighbours", "self.part(one)"))) is None
    assert data_loop(frame(text.format("levels", "x[one]"))) is None
    assert data_loop(frame("def forward(self, x):\n    return [x[one] for one in self.kept]  # here\n")) is None
    assert data_loop(frame("def forward(self, x, cites):\n    return stack([x[one] for one in cites])  # here\n")) == 2


MANY = "{0} = {1}\ndef predict(w, x):\n    return stack([one(w, k, x) for k in range({0})])  # here\n"


def test_as_many_results_as_a_constant_says_none_from_another_are_a_loop(frame):
    assert data_loop(frame(MANY.format("MEMBERS", 24))) == 3
    assert data_loop(frame(MANY.format("MEMBERS", 4))) is None
    assert data_loop(frame(MANY.format("MEMBERS", "load()"))) is None
    assert data_loop(frame(MANY.format("LAYERS", 24))) is None
    assert data_loop(frame(MANY.replace("{0} = ", "{0}, INPUTS = ", 1).format("MEMBERS", "24, 20"))) == 3
    assert data_loop(frame(MANY.format("MEMBERS", 24) + "MEMBERS = 5\n")) is None
    handed_on = "DEPTH = M = 24\ndef predict(w, x):\n    for k in range(M):\n        x = one(w, k, x)  # here\n"
    assert data_loop(frame(handed_on)) is None
