"""Where steps begin and end, told from real loops under a scripted clock."""

import itertools

import pytest
import torch
from tests.unit.probe.watched import (
    BACKWARD,
    FORWARD,
    INPUT,
    LOSS,
    MS,
    OPTIMIZER,
    STEP,
    Watch,
)

from flatout.schema.phase import Phase

X = torch.ones(2, 2)


@pytest.fixture
def w():
    with Watch() as watch:
        yield watch


# -- one loader, one optimizer ------------------------------------------------------------------------------------


def test_a_plain_loop(w):
    model = w.model()
    optimizer = w.sgd(model)
    w.clock.spend(100)
    for _ in range(2):
        for x in w.loader(5):
            w.train_on(model, optimizer, x)
            w.clock.spend(2)
        w.clock.spend(4)
    w.end()
    assert w.walls() == [STEP + 2] * 10
    assert w.batches() == [1] * 10
    assert [step.epoch for step in w.steps] == [0] * 5 + [1] * 5
    assert [number for number, step in enumerate(w.steps) if step.first_of_epoch] == [0, 5]
    assert w.phases(5) == {"input": INPUT, "forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER, "host": 3}
    assert w.steps[5].host_parts_ns == (0, LOSS * MS, 2 * MS)
    assert (w.out(Phase.EPOCH_GAP), w.out(Phase.OTHER), w.rest()) == (4, 4, 100)
    assert w.training_loaders() == [True, True]


def test_the_first_step_is_whole_though_its_modules_are_not_known_yet(w):
    model = w.model()
    optimizer = w.sgd(model)
    for x in w.loader(3):
        w.train_on(model, optimizer, x)
    w.end()
    assert w.phases(0) == {"input": INPUT, "backward": BACKWARD, "optimizer": OPTIMIZER, "host": FORWARD + LOSS}
    assert w.phases(1)["forward"] == FORWARD


@pytest.mark.parametrize("kind", ["loader", "stream"])
def test_workers_that_persist_and_datasets_that_stream(w, kind):
    model = w.model()
    optimizer = w.sgd(model)
    loader = getattr(w, kind)(4, num_workers=1, persistent_workers=True)
    for _ in range(3):
        for x in loader:
            w.train_on(model, optimizer, x)
    w.end()
    assert w.batches() == [1] * 12
    assert [number for number, step in enumerate(w.steps) if step.first_of_epoch] == [0, 4, 8]
    loader._iterator._shutdown_workers()


def test_a_loop_that_breaks_leaves_its_last_step_without_what_follows(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number, x in enumerate(w.loader(9)):
        w.train_on(model, optimizer, x)
        if number == 3:
            break
    w.clock.spend(5000)
    w.end()
    assert w.walls() == [STEP] * 4
    assert (w.out(Phase.OTHER), w.rest()) == (5000, 0)


def test_epochs_cut_short(w):
    model = w.model()
    optimizer = w.sgd(model)
    loader = w.loader(9)
    for _ in range(3):
        for x in itertools.islice(loader, 4):
            w.train_on(model, optimizer, x)
    w.end()
    assert w.batches() == [1] * 12
    assert [number for number, step in enumerate(w.steps) if step.first_of_epoch] == [0, 4, 8]


def test_skipped_batches_belong_to_the_step_they_delay(w):
    model = w.model()
    optimizer = w.sgd(model)
    for epoch in range(2):
        for number, x in enumerate(w.loader(6)):
            if number in ((2, 3) if epoch == 0 else (0, 4)):
                continue
            w.train_on(model, optimizer, x)
    w.end()
    assert w.batches() == [1, 1, 3, 1, 2, 1, 1, 2]
    assert w.walls() == [STEP + (count - 1) * INPUT for count in w.batches()]
    assert w.rest() == 0


def test_batches_skipped_to_resume_are_start_up(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number, x in enumerate(w.loader(50)):
        if number >= 40:
            w.train_on(model, optimizer, x)
    w.end()
    assert w.batches()[1:] == [1] * 9
    assert len(w.steps) == 10
    assert w.batches()[0] <= 2


def test_a_pass_over_the_data_before_training_is_start_up(w):
    model = w.model()
    optimizer = w.sgd(model)
    loader = w.loader(6)
    torch.stack([x.mean() for x in loader]).mean()
    for x in loader:
        w.train_on(model, optimizer, x)
    w.end()
    assert w.batches() == [1] * 6
    assert w.rest() == 6 * INPUT
    assert sum(stretch.wall_ns for stretch in w.outside) == 0


def test_a_pass_over_the_data_between_epochs_lies_outside(w):
    model = w.model()
    optimizer = w.sgd(model)
    loader = w.loader(4)
    for _ in range(2):
        for x in loader:
            w.train_on(model, optimizer, x)
        torch.stack([x.mean() for x in loader]).mean()
    w.end()
    assert w.batches() == [1] * 8
    assert w.out(Phase.OTHER) == 8 * INPUT
    assert w.rest() == 0


def test_a_loader_that_loads_from_a_loader(w):
    class Outer(torch.utils.data.IterableDataset):
        def __init__(self, inner):
            self.inner = inner

        def __iter__(self):
            for x in self.inner:
                w.clock.spend(1)
                yield x

    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(2):
        for x in torch.utils.data.DataLoader(Outer(w.loader(5)), batch_size=None):
            w.train_on(model, optimizer, x)
    w.end()
    assert w.walls() == [STEP + 1] * 10
    assert w.phases(3)["input"] == INPUT + 1
    assert w.batches() == [1] * 10


# -- accumulation -------------------------------------------------------------------------------------------------


def test_accumulation_with_the_rest_carried_into_the_next_epoch(w):
    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(3):
        for number, x in enumerate(w.loader(10)):
            w.loss(model, x).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        w.clock.spend(9)
    w.end()
    micro = STEP - OPTIMIZER
    assert w.batches() == [4, 4, 6, 4, 6, 4]
    assert w.walls() == [count * micro + OPTIMIZER for count in w.batches()]
    assert (w.out(Phase.EPOCH_GAP), w.out(Phase.OTHER)) == (18, 9)
    assert w.rest() == 2 * micro


def test_accumulation_with_the_rest_stepped_after_the_loop(w):
    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(3):
        for number, x in enumerate(w.loader(10)):
            w.loss(model, x).backward()
            if number % 4 == 3:
                optimizer.step()
        optimizer.step()
        w.clock.spend(9)
    w.end()
    assert w.batches() == [4, 4, 2] * 3
    assert w.walls() == [count * (STEP - OPTIMIZER) + OPTIMIZER for count in w.batches()]
    assert (w.out(Phase.EPOCH_GAP), w.out(Phase.OTHER)) == (18, 9)
    assert w.rest() == 0


def test_one_step_an_epoch_made_after_the_loop(w):
    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(4):
        for x in w.loader(5):
            w.loss(model, x).backward()
        optimizer.step()
        w.clock.spend(9)
    w.end()
    assert w.batches() == [5] * 4
    assert w.walls() == [5 * (STEP - OPTIMIZER) + OPTIMIZER] * 4
    assert (w.out(Phase.EPOCH_GAP), w.out(Phase.OTHER)) == (27, 9)
    assert w.rest() == 0


# -- several optimizers -------------------------------------------------------------------------------------------


def test_gan_with_a_loader(w):
    generator, critic = w.model(), w.model()
    optimizers = w.sgd(generator), w.sgd(critic)
    for x in w.loader(6):
        w.train_on(critic, optimizers[1], x)
        w.train_on(generator, optimizers[0], torch.ones_like(x))
    w.end()
    assert w.batches() == [1] * 6
    assert w.walls() == [2 * STEP - INPUT] * 6


def test_gan_without_a_loader(w):
    generator, critic = w.model(), w.model()
    optimizers = w.sgd(generator), w.sgd(critic)
    for _ in range(6):
        w.clock.spend(2)
        w.train_on(critic, optimizers[1], X)
        w.train_on(generator, optimizers[0], X)
    w.end()
    bare = 2 * (STEP - INPUT) + 2
    assert w.walls() == [bare] * 5
    assert w.rest() == bare  # the first round cannot be told from start-up


def test_five_critic_steps_to_one_of_the_generator(w):
    generator, critic = w.model(), w.model()
    optimizers = w.sgd(generator), w.sgd(critic)
    for number, x in enumerate(w.loader(20)):
        w.train_on(critic, optimizers[1], x)
        if number % 5 == 4:
            w.train_on(generator, optimizers[0], torch.ones_like(x))
    w.end()
    assert w.batches() == [1] * 20
    assert w.walls() == [STEP, STEP, STEP, STEP, 2 * STEP - INPUT] * 4


def test_five_critic_steps_to_one_of_the_generator_without_a_loader(w):
    generator, critic = w.model(), w.model()
    optimizers = w.sgd(generator), w.sgd(critic)
    for number in range(20):
        w.train_on(critic, optimizers[1], X)
        if number % 5 == 4:
            w.train_on(generator, optimizers[0], X)
    w.end()
    bare = STEP - INPUT
    assert w.walls() == [bare, bare, bare, 2 * bare, *[bare, bare, bare, bare, 2 * bare] * 3]


def test_an_optimizer_built_upon_another_makes_one_step(w):
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self):
            w.clock.spend(1)
            self.inner.step()

    model = w.model()
    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # its step has hooks of its own from here on
    optimizer = Lookahead(w.sgd(model))
    for _ in range(5):
        w.train_on(model, optimizer, X)
    w.end()
    assert w.walls() == [STEP - INPUT + 1] * 4


def test_an_optimizer_that_fails_inside_its_step_is_forgotten(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number, x in enumerate(w.loader(8)):
        w.loss(model, x).backward()
        optimizer.clock = None if number == 2 else w.clock
        try:
            optimizer.step()
        except AttributeError:
            continue
    w.end()
    assert w.batches() == [1, 1, 2, 1, 1, 1, 1]
    assert w.phases(3)["optimizer"] == OPTIMIZER


# -- several loaders ----------------------------------------------------------------------------------------------


def test_two_loaders_zipped(w):
    model = w.model()
    optimizer = w.sgd(model)
    labelled, free = w.loader(5), w.loader(7)
    for _ in range(2):
        for x, y in zip(labelled, free, strict=False):
            w.train_on(model, optimizer, x + y)
    w.end()
    assert w.batches() == [2] * 10
    assert w.walls() == [STEP + INPUT] * 10
    assert w.training_loaders() == [True, True]


def test_a_second_loader_asked_inside_the_loop(w):
    model = w.model()
    optimizer = w.sgd(model)
    labelled, free = w.loader(12), w.loader(5)
    endless = (x for _ in itertools.count() for x in free)
    for x in labelled:
        w.train_on(model, optimizer, x + next(endless))
    w.end()
    assert w.batches() == [2] * 12
    assert w.training_loaders() == [True, True]
    assert w.walls() == [STEP + INPUT] * 12
    endless.close()


def test_an_endless_loader(w):
    model = w.model()
    optimizer = w.sgd(model)

    def forever(loader):
        while True:
            yield from loader

    batches = forever(w.loader(5))
    for _ in range(17):
        w.train_on(model, optimizer, next(batches))
    w.end()
    assert w.batches() == [1] * 17
    assert w.walls() == [STEP] * 17


def test_itertools_cycle_keeps_the_batches_of_the_first_pass(w):
    model = w.model()
    optimizer = w.sgd(model)
    batches = itertools.cycle(w.loader(5))
    for _ in range(17):
        w.train_on(model, optimizer, next(batches))
    w.end()
    assert w.walls() == [STEP] * 5 + [STEP - INPUT] * 12


# -- validation ---------------------------------------------------------------------------------------------------


def validate(w, model, loader, *, limit=None, grad=False):
    with torch.set_grad_enabled(grad):
        for number, x in enumerate(loader):
            w.loss(model, x)
            if number + 1 == limit:
                break


@pytest.mark.parametrize("grad", [False, True])
def test_validation_after_each_epoch(w, grad):
    model = w.model()
    optimizer = w.sgd(model)
    training, held_out = w.loader(5), w.loader(3)
    for _ in range(3):
        for x in training:
            w.train_on(model, optimizer, x)
        validate(w, model, held_out, grad=grad)
    w.end()
    assert w.batches() == [1] * 15
    assert w.out(Phase.VALIDATION) == 9 * (INPUT + FORWARD + LOSS)
    assert w.rest() == 0
    assert w.training_loaders() == [True, False]
    assert {s.with_grad for s in w.outside if s.phase is Phase.VALIDATION and s.num_batches} == {grad}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("limit", [None, 2])
def test_validation_inside_an_epoch(w, grad, limit):
    model = w.model()
    optimizer = w.sgd(model)
    training, held_out = w.loader(12), w.loader(3)
    for number, x in enumerate(training):
        w.train_on(model, optimizer, x)
        if number % 4 == 3:
            validate(w, model, held_out, limit=limit, grad=grad)
    w.end()
    assert w.batches() == [1] * 12
    assert w.walls() == [STEP] * 12
    assert w.out(Phase.VALIDATION) == 3 * (limit or 3) * (INPUT + FORWARD + LOSS)
    assert w.rest() == 0


def test_evaluation_on_the_training_loader(w):
    model = w.model()
    optimizer = w.sgd(model)
    training = w.loader(5)
    for _ in range(2):
        for x in training:
            w.train_on(model, optimizer, x)
        validate(w, model, training)
    w.end()
    assert w.batches() == [1] * 10
    assert w.out(Phase.VALIDATION) == 10 * (INPUT + FORWARD + LOSS)
    assert [number for number, step in enumerate(w.steps) if step.first_of_epoch] == [0, 5]


def test_a_trial_validation_before_training_is_start_up(w):
    model = w.model()
    optimizer = w.sgd(model)
    training, held_out = w.loader(5), w.loader(5)
    validate(w, model, held_out, limit=2)
    for _ in range(2):
        for x in training:
            w.train_on(model, optimizer, x)
        validate(w, model, held_out, limit=2)
    w.end()
    assert w.batches()[1:] == [1] * 9
    assert w.walls()[1:] == [STEP] * 9
    assert w.out(Phase.VALIDATION) == 3 * (INPUT + FORWARD + LOSS)  # the last batch has no end
    assert w.training_loaders() == [True, False]


def test_a_single_validation_batch_marks_the_step_it_happens_in(w):
    model = w.model()
    optimizer = w.sgd(model)
    training, held_out = w.loader(12), w.loader(3)
    for number, x in enumerate(training):
        w.train_on(model, optimizer, x)
        if number % 4 == 3:
            with torch.no_grad():
                w.loss(model, next(iter(held_out)))
    w.end()
    assert len(w.steps) == 12
    assert w.training_loaders() == [True, False]
    assert sum(w.walls()) + w.out(Phase.VALIDATION) == 12 * STEP + 3 * (INPUT + FORWARD + LOSS) - w.rest()


def test_validation_of_a_copy_with_averaged_weights(w):
    model = w.model()
    optimizer = w.sgd(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    training, held_out = w.loader(5), w.loader(3)
    for _ in range(2):
        for x in training:
            w.train_on(model, optimizer, x)
        validate(w, average, held_out)
    w.end()
    assert w.out(Phase.VALIDATION) == 6 * (INPUT + FORWARD + LOSS)


# -- no loader ----------------------------------------------------------------------------------------------------


def test_no_loader_and_an_estimate_now_and_then(w):
    """As in nanoGPT: every so often a handful of forward passes in evaluation mode, which is validation."""
    model = w.model()
    optimizer = w.sgd(model)
    for number in range(24):
        if number % 8 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(5):
                    w.loss(model, X)
            model.train()
        w.clock.spend(2)
        w.train_on(model, optimizer, X)
    w.end()
    estimate = 5 * (FORWARD + LOSS)
    assert len(w.steps) == 23
    assert set(w.walls()) == {STEP, STEP - 2}  # the wait before a step after an estimate is taken for the estimate's
    assert w.out(Phase.VALIDATION) == 2 * (estimate + 2)
    assert w.rest() == STEP + estimate


def test_a_validation_by_hand_that_records_gradients_is_validation(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number in range(24):
        w.train_on(model, optimizer, X)
        if number % 8 == 7:
            for _ in range(6):
                w.loss(model, X)
    w.end()
    found = [stretch for stretch in w.outside if stretch.phase is Phase.VALIDATION]
    assert sum(stretch.wall_ns for stretch in found) >= 2 * 6 * FORWARD
    assert all(stretch.with_grad for stretch in found)


def test_a_policy_that_acts_without_gradients_is_no_validation(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number in range(40):
        if number % 4 == 0:
            with torch.no_grad():
                for _ in range(12):
                    model(X)
        w.train_on(model, optimizer, X)
    w.end()
    assert w.out(Phase.VALIDATION) == 0
    assert not any(step.forward_without_grad for step in w.steps)


def act_and_train(w, model, optimizer, number):
    """Learn from a rollout of twelve forward passes, with gradients, three times."""
    if number % 3 == 0:
        for _ in range(12):
            model(X)
    w.train_on(model, optimizer, X)


def test_a_policy_that_acts_with_gradients_before_every_few_steps_is_no_validation(w):
    """As in minimalRL: a rollout is learned from three times; the first ones may be taken for a validation."""
    model = w.model()
    optimizer = w.sgd(model)
    for number in range(60):
        act_and_train(w, model, optimizer, number)
    w.end()
    assert w.out(Phase.VALIDATION) == 3 * 12 * FORWARD
    assert sorted(set(w.walls()[-30:])) == [STEP - 2, STEP - 2 + 12 * FORWARD]


def test_a_validation_without_gradients_every_few_steps_stays_one_among_rollouts(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number in range(60):
        act_and_train(w, model, optimizer, number)
        if number % 20 == 16:
            model.eval()
            with torch.no_grad():
                for _ in range(40):
                    model(X)
            model.train()
    w.end()
    assert w.out(Phase.VALIDATION) >= 3 * 12 * FORWARD + 2 * 40 * FORWARD


def test_training_by_hand_with_a_validation_loader_that_breaks(w):
    model = w.model()
    optimizer = w.sgd(model)
    held_out = w.loader(9)
    for number in range(60):
        w.train_on(model, optimizer, X)
        if number % 20 == 10:
            validate(w, model, held_out, limit=3)
    w.end()
    assert len(w.steps) in (58, 59)
    assert w.training_loaders() == [False]
    whole = 59 * (STEP - INPUT) + 9 * (INPUT + FORWARD + LOSS)
    assert sum(w.walls()) + w.out(Phase.VALIDATION) + w.rest() == whole + STEP - INPUT
    assert w.out(Phase.VALIDATION) >= 6 * (INPUT + FORWARD + LOSS)


def test_one_batch_that_stays(w):
    model = w.model()
    optimizer = w.sgd(model)
    x = next(iter(w.loader(5)))
    for _ in range(200):
        w.train_on(model, optimizer, x)
    w.end()
    assert len(w.steps) >= 200 - 33
    assert set(w.walls()) == {STEP - INPUT}


@pytest.mark.parametrize("inner", [8, 31, 32, 33, 80])
@pytest.mark.slow
def test_many_optimizer_steps_on_each_batch(w, inner):
    model = w.model()
    optimizer = w.sgd(model)
    for x in w.loader(12):
        for _ in range(inner):
            w.train_on(model, optimizer, x)
    w.end()
    if inner < 32:
        assert w.walls() == [INPUT + inner * (STEP - INPUT)] * 12
    else:
        assert len(w.steps) >= 11 * inner
        assert sorted(w.walls())[len(w.steps) // 2] == STEP - INPUT
    assert w.rest() <= 34 * STEP


def test_passes_over_what_was_collected(w):
    """As in PPO: collect without gradients, then several passes of minibatches over it."""
    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(4):
        with torch.no_grad():
            for _ in range(3):
                model(X)
        for _ in range(2):
            for x in w.loader(3):
                w.train_on(model, optimizer, x)
    w.end()
    assert w.batches() == [1] * 24
    assert w.walls() == [STEP] * 24
    assert sum(stretch.wall_ns for stretch in w.outside) / MS + w.rest() == 12 * FORWARD


@pytest.mark.parametrize("by_name", [False, True])
def test_gradients_asked_for_are_the_backward_pass_of_a_script_in_functions(w, by_name):
    model = w.model()
    parameters = list(model.parameters())
    for _ in range(5):
        for x in w.loader(4):
            given = {"outputs": w.loss(model, x)} if by_name else {}
            grads = torch.autograd.grad(*(() if by_name else (w.loss(model, x),)), inputs=parameters, **given)
            with torch.no_grad():
                for parameter, grad in zip(parameters, grads, strict=True):
                    parameter -= 1e-4 * grad
            w.clock.spend(OPTIMIZER)
    w.end()
    assert w.walls()[1:] == [STEP] * 12
    assert w.phases(5)["backward"] == BACKWARD


@pytest.mark.parametrize("optimizer", [True, False])
def test_gradients_asked_for_on_the_way_to_a_step_are_none(w, optimizer):
    """A penalty on gradients, in a script that steps by an optimizer or by `backward()`."""
    model = w.model()
    stepping = w.sgd(model) if optimizer else None
    for _ in range(5):
        for x in w.loader(4):
            penalty = torch.autograd.grad(model(x).sum(), list(model.parameters()), create_graph=True)
            (w.loss(model, x) + sum(one.square().sum() for one in penalty)).backward()
            if stepping is not None:
                stepping.step()
    w.end()
    assert w.batches()[2:] == [1] * (len(w.steps) - 2)
    assert len(w.steps) >= 12


def test_plain_gradient_descent_without_an_optimizer(w):
    model = w.model()
    for _ in range(5):
        for x in w.loader(4):
            w.loss(model, x).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 1e-4 * parameter.grad
                    parameter.grad = None
            w.clock.spend(OPTIMIZER)
    w.end()
    assert w.batches()[1:] == [1] * (len(w.steps) - 1)
    assert w.walls()[1:] == [STEP] * (len(w.steps) - 1)
    assert len(w.steps) == 13
    assert w.phases(5)["forward"] == FORWARD


def test_plain_gradient_descent_without_loader_or_optimizer(w):
    model = w.model()
    for _ in range(40):
        w.loss(model, X).backward()
        w.clock.spend(OPTIMIZER)
    w.end()
    assert len(w.steps) >= 30
    assert set(w.walls()) == {STEP - INPUT}


# -- scalers, closures, checkpoints -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["loader", "hand"])
def test_a_gradient_scaler_that_skips(w, source):
    model = w.model()
    optimizer = w.sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    batches = w.loader(9) if source == "loader" else [X] * 9
    for number, x in enumerate(batches):
        loss = w.loss(model, x)
        scaler.scale(loss).backward()
        if number in (0, 4, 5):
            next(model.parameters()).grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    w.end()
    skipped = [STEP - OPTIMIZER * (number in (0, 4, 5)) for number in range(9)]
    if source == "loader":
        assert w.walls() == skipped
    else:
        assert w.walls() == [wall - INPUT for wall in skipped[1:]]


@pytest.mark.parametrize("source", ["loader", "hand"])
def test_closures(w, source):
    model = w.model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn=None, tolerance_grad=0)
    calls = []
    for x in w.loader(6) if source == "loader" else [X] * 6:

        def closure(x=x):
            calls.append(1)
            optimizer.zero_grad()
            loss = w.loss(model, x).square()
            loss.backward()
            return loss

        optimizer.step(closure)
    w.end()
    assert len(w.steps) == (6 if source == "loader" else 5)
    assert w.batches() == [1] * len(w.steps)
    assert w.phases(3)["forward"] % FORWARD == 0
    assert w.phases(3)["backward"] % BACKWARD == 0


def test_a_checkpoint_in_a_step_and_between_epochs(w, tmp_path):
    class Slow:
        def __reduce__(self):
            w.clock.spend(30)
            return list, ()

    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(2):
        for number, x in enumerate(w.loader(4)):
            w.train_on(model, optimizer, x)
            if number == 2:
                torch.save(Slow(), tmp_path / "inside.pt")
        torch.save(Slow(), tmp_path / "between.pt")
    w.end()
    assert [w.phases(number).get("checkpoint", 0) for number in range(8)] == [0, 0, 30, 0] * 2
    assert w.out(Phase.CHECKPOINT) == 60
    assert w.rest() == 0


def test_validation_by_hand_inside_a_loop_over_a_loader(w):
    model = w.model()
    optimizer = w.sgd(model)
    for number, x in enumerate(w.loader(40)):
        w.train_on(model, optimizer, x)
        if number % 10 == 9:
            model.eval()
            with torch.no_grad():
                for _ in range(4):
                    w.loss(model, X)
            model.train()
    w.end()
    assert len(w.steps) == 40
    validation = 4 * 4 * (FORWARD + LOSS)
    assert sum(w.walls()) + w.out(Phase.VALIDATION) == 40 * STEP + validation
    marked = [step for step in w.steps if step.forward_without_grad]
    assert w.out(Phase.VALIDATION) == validation
    assert marked == []
