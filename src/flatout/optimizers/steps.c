/* Steps of optimizers in one pass over memory: each number goes through what torch's operations do to it, in their
 * order, rounded where they round, and is written once.
 *
 * torch's loops (torch/optim/adam.py and sgd.py, `_single_tensor_...`) are the definition. Where torch's build may fuse
 * a product with a sum (Lerp.h, BinaryOpsKernel.cpp and PointwiseOpsKernel.cpp of ATen/native) the caller says whether
 * it does: one_pass.py finds out by trying. Nothing else is fused (-ffp-contract=off).
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#if defined(__GNUC__)
#define INLINE __attribute__((always_inline)) inline
#else
#define INLINE inline
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FLUSHES ((_mm_getcsr() & 0x8040) != 0) /* numbers of less than full precision count as zero */
#else
#define FLUSHES 0
#endif

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#include <unistd.h>
#define HAS_THREADS
#endif

#define FUSED_SUM 1    /* a + alpha * b is rounded once */
#define FUSED_LERP 2   /* and so is the sum in torch.lerp */
#define FUSED_SQUARE 4 /* and the one in torch.addcmul, after its first product */
#define LIBRARYS_ROOT 8 /* square roots are those of the library that torch asks, not the nearest numbers */

#define PIECE 8192 /* numbers that a thread takes at a time: they stay in the core's cache until they are done with */
#define ALONE 16384 /* numbers that one thread has done before a second one would have begun */
#define LONG 1000000 /* numbers that take so long that the interpreter's lock is let go of meanwhile */

#define MOST 6 /* columns that a step is told */

typedef struct {
    float *weight;
    const float *gradient;
    int64_t number;
    float *first, *second; /* moments; of SGD the momentum, and none */
    float *step;
    float rate, correction; /* of Adam: -lr / correction of the first moment; root of the second's correction */
} Tensor;

typedef struct {
    double lr, beta1, beta2, eps, decay; /* of SGD the betas are momentum and dampening */
    float sign;                          /* -1 where the objective grows */
    int decoupled, nesterov, fused;
} Settings;

typedef struct Work Work;
typedef void (*Update)(const Work *work, const Tensor *tensor, int64_t first, int64_t last);

struct Work {
    Settings settings;
    Tensor *tensors;
    Py_ssize_t number;
    Update update;
    int64_t next; /* piece that nobody has taken */
};

/* ------------------------------------------------------------------------------------------------------ arithmetic */

static INLINE float sum(float a, float alpha, float b, int fused) {
    return fused ? __builtin_fmaf(b, alpha, a) : a + alpha * b;
}

/* Square roots as Intel's Vector Mathematics gives them (`vmsSqrt`): at high accuracy, not always the nearest number. */
typedef void (*Roots)(int64_t number, const float *in, float *out, int64_t mode);
static Roots roots_of;
#define AS_TORCH 0x140102 /* high accuracy, small numbers as they are, no word about errors: ATen/cpu/vml.h */

static INLINE void adam_with(const Work *work, const Tensor *tensor, int64_t first, int64_t last, int decay,
                             int fused_sum, int fused_lerp, int fused_square) {
    const Settings *given = &work->settings;
    const double toward = 1 - given->beta1;
    const int near = toward < 0.5, decoupled = given->decoupled; /* torch.lerp starts from the nearer end */
    const float sign = given->sign, weight_decay = (float)given->decay;
    const float coefficient = near ? (float)toward : (float)toward - 1.0f;
    const float beta2 = (float)given->beta2, value = (float)(1 - given->beta2), eps = (float)given->eps;
    const float kept = decoupled ? (float)(1 - given->lr * given->decay) : 1.0f;
    const float rate = tensor->rate, correction = tensor->correction;
    float *restrict weights = tensor->weight + first, *restrict firsts = tensor->first + first;
    float *restrict seconds = tensor->second + first;
    const float *restrict gradients = tensor->gradient + first;
    const int64_t number = last - first;
    float roots[PIECE];
    int64_t i;
    for (i = 0; i < number; i++) {
        float gradient = sign * gradients[i], moment = firsts[i], square, from;
        if (decay) gradient = sum(gradient, weight_decay, weights[i], fused_sum);
        from = near ? moment : gradient;
        moment = fused_lerp ? __builtin_fmaf(coefficient, gradient - moment, from)
                            : from + coefficient * (gradient - moment);
        square = seconds[i] * beta2;
        square = fused_square ? __builtin_fmaf(value * gradient, gradient, square)
                              : square + value * gradient * gradient;
        firsts[i] = moment;
        seconds[i] = square;
    }
    if (given->fused & LIBRARYS_ROOT)
        roots_of(number, seconds, roots, AS_TORCH);
    else
        for (i = 0; i < number; i++) roots[i] = sqrtf(seconds[i]);
    for (i = 0; i < number; i++)
        weights[i] = weights[i] * kept + rate * firsts[i] / (roots[i] / correction + eps);
}

static INLINE void sgd_with(const Work *work, const Tensor *tensor, int64_t first, int64_t last, int decay,
                            int has_momentum, int nesterov, int fused) {
    const Settings *given = &work->settings;
    const float sign = given->sign, weight_decay = (float)given->decay, rate = (float)-given->lr;
    const float momentum = (float)given->beta1, damped = (float)(1 - given->beta2);
    float *restrict weights = tensor->weight, *restrict buffers = tensor->first;
    const float *restrict gradients = tensor->gradient;
    int64_t i;
    for (i = first; i < last; i++) {
        const float weight = weights[i];
        float gradient = sign * gradients[i];
        if (decay) gradient = sum(gradient, weight_decay, weight, fused);
        if (has_momentum) {
            const float buffer = sum(buffers[i] * momentum, damped, gradient, fused);
            buffers[i] = buffer;
            gradient = nesterov ? sum(gradient, momentum, buffer, fused) : buffer;
        }
        weights[i] = sum(weight, rate, gradient, fused);
    }
}

/* One function for each way, so that no loop asks which. */
#define WAY(NAME, WITH, ...)                                                                                           \
    FOR_EACH_PROCESSOR static void NAME(const Work *work, const Tensor *tensor, int64_t first, int64_t last) {         \
        WITH(work, tensor, first, last, __VA_ARGS__);                                                                  \
    }
#define SQUARES(NAME, ...) WAY(NAME##0, adam_with, __VA_ARGS__, 0) WAY(NAME##1, adam_with, __VA_ARGS__, 1)
#define LERPS(NAME, ...) SQUARES(NAME##0, __VA_ARGS__, 0) SQUARES(NAME##1, __VA_ARGS__, 1)
LERPS(adam, 0, 0)
LERPS(adam_decayed0, 1, 0)
LERPS(adam_decayed1, 1, 1)
#define BOTH(NAME, ...) WAY(NAME##0, sgd_with, __VA_ARGS__, 0) WAY(NAME##1, sgd_with, __VA_ARGS__, 1)
BOTH(sgd_plain0, 0, 0, 0)
BOTH(sgd_plain1, 1, 0, 0)
BOTH(sgd_momentum0, 0, 1, 0)
BOTH(sgd_momentum1, 1, 1, 0)
BOTH(sgd_nesterov0, 0, 1, 1)
BOTH(sgd_nesterov1, 1, 1, 1)

static Update adam_update(const Settings *given) {
    static const Update updates[3][2][2] = {{{adam00, adam01}, {adam10, adam11}},
                                            {{adam_decayed000, adam_decayed001}, {adam_decayed010, adam_decayed011}},
                                            {{adam_decayed100, adam_decayed101}, {adam_decayed110, adam_decayed111}}};
    const int kind = given->decay == 0 || given->decoupled ? 0 : given->fused & FUSED_SUM ? 2 : 1;
    return updates[kind][(given->fused & FUSED_LERP) != 0][(given->fused & FUSED_SQUARE) != 0];
}

static Update sgd_update(const Settings *given) {
    static const Update updates[3][2][2] = {{{sgd_plain00, sgd_plain01}, {sgd_plain10, sgd_plain11}},
                                            {{sgd_momentum00, sgd_momentum01}, {sgd_momentum10, sgd_momentum11}},
                                            {{sgd_nesterov00, sgd_nesterov01}, {sgd_nesterov10, sgd_nesterov11}}};
    const int kind = given->beta1 == 0 ? 0 : given->nesterov ? 2 : 1;
    return updates[kind][given->decay != 0][given->fused & FUSED_SUM];
}

/* --------------------------------------------------------------------------------------------------------- threads */

static int64_t pieces_of(const Tensor *tensor) { return (tensor->number + PIECE - 1) / PIECE; }

static void work_on(void *given) {
    Work *work = given;
    const Tensor *tensor = work->tensors, *end = tensor + work->number;
    int64_t before = 0; /* pieces of the tensors that come before */
    for (;;) {
        const int64_t piece = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
        int64_t first;
        while (tensor < end && piece - before >= pieces_of(tensor)) before += pieces_of(tensor++);
        if (tensor == end) return;
        first = (piece - before) * PIECE;
        work->update(work, tensor, first, tensor->number - first < PIECE ? tensor->number : first + PIECE);
    }
}

/* Threads that torch computes with, which wait for work for a while: GCC's OpenMP library, by its stable entry. */
typedef void (*Parallel)(void (*work)(void *), void *given, unsigned threads, unsigned flags);
static Parallel parallel;
#ifdef HAS_THREADS
static pid_t of_process; /* that may use it: in one that is forked from it those threads are not there */
#endif

static void work_together(Work *work, int64_t numbers, int threads) {
#ifdef HAS_THREADS
    if (numbers > ALONE && threads > 1 && parallel && getpid() == of_process) {
        const int64_t most = (numbers + PIECE - 1) / PIECE;
        parallel(work_on, work, (unsigned)(threads < most ? threads : most), 0);
        return;
    }
#endif
    (void)numbers, (void)threads;
    work_on(work);
}

/* ----------------------------------------------------------------------------------------------------------- calls */

typedef struct {
    uintptr_t first, last;
    int written;
} Span;

static int by_address(const void *one, const void *other) {
    const Span *a = one, *b = other;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* 1 where no memory that is written to is also anything else's; 0 where some is, -1 without memory. */
static int are_apart(const Work *work) {
    const Py_ssize_t most = work->number * 5;
    Span *spans = malloc(sizeof(Span) * (size_t)(most ? most : 1));
    Py_ssize_t number = 0, k;
    uintptr_t read_to = 0, written_to = 0;
    int apart = 1;
    if (!spans) return -1;
    for (k = 0; k < work->number; k++) {
        const Tensor *tensor = work->tensors + k;
        const size_t bytes = (size_t)tensor->number * sizeof(float);
        const void *all[] = {tensor->gradient, tensor->weight, tensor->first, tensor->second, tensor->step};
        int which;
        for (which = 0; which < 5; which++) {
            const uintptr_t first = (uintptr_t)all[which];
            if (first) spans[number++] = (Span){first, first + (which < 4 ? bytes : sizeof(float)), which > 0};
        }
    }
    qsort(spans, (size_t)number, sizeof(Span), by_address);
    for (k = 0; k < number && apart; k++) {
        apart = spans[k].first >= written_to && (!spans[k].written || spans[k].first >= read_to);
        if (spans[k].last > read_to) read_to = spans[k].last;
        if (spans[k].written && spans[k].last > written_to) written_to = spans[k].last;
    }
    free(spans);
    return apart;
}

/* What DLPack 1 says of a tensor, and of the table of functions that torch has since 2.10 for telling it
 * (github.com/dmlc/dlpack, include/dlpack/dlpack.h): without a call of Python's for each thing that is asked. */
typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Lent;

typedef int (*Lend)(void *tensor, Lent *out);

typedef struct Exchange {
    uint32_t major, minor;
    struct Exchange *before;
    void *others[3];
    Lend lend; /* lends until control returns */
} Exchange;

#define CPU 1  /* kDLCPU */
#define FLOAT 2 /* kDLFloat */

static Lend lend;

static PyObject *py_take_exchange(PyObject *self, PyObject *capsule) {
    const Exchange *found = NULL;
    (void)self;
    lend = NULL;
    if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (found && found->major != 1) found = found->before;
    if (found) lend = found->lend;
    return PyBool_FromLong(lend != NULL);
}

/* Whether a tensor of one of two types is made of numbers of single precision in the host's memory, one after the other;
 * their number. No exception is left. */
static int is_plain(PyObject *tensor, const PyObject *plain, const PyObject *other, Lent *seen, int64_t *numbers) {
    int64_t number = 1;
    int at;
    if ((PyObject *)Py_TYPE(tensor) != plain && (PyObject *)Py_TYPE(tensor) != other) return 0;
    if (lend(tensor, seen)) {
        PyErr_Clear();
        return 0;
    }
    if (seen->device_type != CPU || seen->code != FLOAT || seen->bits != 32 || seen->lanes != 1) return 0;
    for (at = 0; at < seen->dims; at++) number *= seen->shape[at];
    *numbers = number;
    if (!number) return 1;
    if (!seen->data) return 0; /* the memory is another tensor's, which stands behind this one */
    for (at = seen->dims, number = 1; seen->strides && at--; number *= seen->shape[at])
        if (seen->shape[at] != 1 && seen->strides[at] != number) return 0;
    return 1;
}

static int of_one_shape(const Lent *one, const Lent *other) {
    int at;
    if (one->dims != other->dims) return 0;
    for (at = 0; at < one->dims; at++)
        if (one->shape[at] != other->shape[at]) return 0;
    return 1;
}

static int told(PyObject *numbers, Py_ssize_t place, int64_t number) {
    PyObject *made = PyLong_FromLongLong(number);
    return made ? PyList_SetItem(numbers, place, made) : -1;
}

static int64_t address_of(const Lent *seen) { return (int64_t)(intptr_t)((char *)seen->data + seen->byte_offset); }

/* Look at tensor `k` of all lists: 1 where it is plain and they are of one shape, 0 where not, -1 with an exception. */
static int look_at(PyObject *lists, PyObject *types, Py_ssize_t k, PyObject *numbers) {
    const Py_ssize_t length = PyList_Size(PyTuple_GetItem(lists, 0)), columns = PyTuple_Size(lists);
    const PyObject *plain = PyTuple_GetItem(types, 0), *other = PyTuple_GetItem(types, 1);
    Lent weight = {0}, seen = {0};
    int64_t number = 0, of_weight = 0;
    Py_ssize_t column;
    for (column = 0; column < columns; column++) {
        PyObject *list = PyTuple_GetItem(lists, column);
        Lent *lent = column ? &seen : &weight;
        if (PyList_Size(list) != length || !is_plain(PyList_GetItem(list, k), plain, other, lent, &number)) return 0;
        if (column && !of_one_shape(&weight, &seen)) return 0;
        if (!column) of_weight = number;
        if (told(numbers, (column + (column > 1)) * length + k, number ? address_of(lent) : 0)) return -1;
    }
    return told(numbers, 2 * length + k, of_weight) ? -1 : 1;
}

static int look_at_counter(PyObject *counters, PyObject *types, Py_ssize_t k, PyObject *numbers, Py_ssize_t place) {
    Lent seen = {0};
    int64_t number = 0;
    if (!is_plain(PyList_GetItem(counters, k), PyTuple_GetItem(types, 0), PyTuple_GetItem(types, 1), &seen, &number))
        return 0;
    return number != 1 ? 0 : told(numbers, place, address_of(&seen)) ? -1 : 1;
}

static PyObject *py_look(PyObject *self, PyObject *args) {
    PyObject *lists, *counters, *types, *numbers;
    Py_ssize_t length, columns, counted, k;
    int plain = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &lists, &PyList_Type, &counters, &PyTuple_Type, &types))
        return NULL;
    columns = PyTuple_Size(lists), counted = PyList_Size(counters);
    for (k = 0; k < columns; k++)
        if (!PyList_Check(PyTuple_GetItem(lists, k))) plain = 0;
    if (!lend || columns < 2 || PyTuple_Size(types) != 2 || !plain) Py_RETURN_NONE;
    length = PyList_Size(PyTuple_GetItem(lists, 0));
    numbers = PyList_New((columns + 1) * length + counted);
    if (!numbers) return NULL;
    for (k = 0; k < length && plain == 1; k++) plain = look_at(lists, types, k, numbers);
    for (k = 0; k < counted && plain == 1; k++)
        plain = look_at_counter(counters, types, k, numbers, (columns + 1) * length + k);
    if (plain == 1) return numbers;
    Py_DECREF(numbers);
    if (plain < 0) return NULL;
    Py_RETURN_NONE;
}

/* `told` holds a column of `work->number` numbers after the other. 0, or -1 with an exception. */
static int read_tensors(Work *work, PyObject *told, int columns) {
    const Py_ssize_t given = PyList_Size(told);
    Py_ssize_t k;
    int column;
    work->number = given < 0 ? 0 : given / columns;
    work->tensors = calloc((size_t)(work->number ? work->number : 1), sizeof(Tensor));
    if (!work->tensors) {
        PyErr_NoMemory();
        return -1;
    }
    for (k = 0; k < work->number; k++) {
        Tensor *tensor = work->tensors + k;
        int64_t numbers[MOST] = {0};
        for (column = 0; column < columns; column++)
            numbers[column] = PyLong_AsLongLong(PyList_GetItem(told, column * work->number + k));
        tensor->weight = (float *)(intptr_t)numbers[0];
        tensor->gradient = (const float *)(intptr_t)numbers[1];
        tensor->number = numbers[2];
        tensor->first = (float *)(intptr_t)numbers[3];
        tensor->second = (float *)(intptr_t)numbers[4];
        tensor->step = (float *)(intptr_t)numbers[5];
    }
    if (!PyErr_Occurred()) return 0;
    free(work->tensors);
    return -1;
}

/* Torch refuses a finite number that single precision has none for. */
static int fits(double number) { return !isfinite(number) || isfinite((float)number); }

static int settings_fit(const Settings *given) {
    return fits(given->lr) && fits(given->decay) && fits(given->eps) && fits(1 - given->lr * given->decay) &&
           fits(given->beta1) && fits(given->beta2) && fits(1 - given->beta1) && fits(1 - given->beta2);
}

/* What steps are divided by, of all tensors before any is counted. 0 where torch would raise. */
static int make_rates(Work *work) {
    const Settings *given = &work->settings;
    Py_ssize_t k;
    for (k = 0; k < work->number; k++) {
        Tensor *tensor = work->tensors + k;
        double step, one, other;
        if (!tensor->step) continue;
        step = *tensor->step + 1.0f;
        one = 1 - pow(given->beta1, step);
        other = 1 - pow(given->beta2, step);
        if (one == 0 || !(other > 0) || !fits(given->lr / one)) return 0;
        tensor->rate = (float)-(given->lr / one);
        tensor->correction = (float)pow(other, 0.5);
    }
    return 1;
}

/* Make the step where nothing speaks against it; False, and nothing done, where something does. */
static PyObject *carry_out(Work *work, int threads) {
    int64_t numbers = 0;
    int apart = 0;
    Py_ssize_t k;
    if (!FLUSHES && (roots_of || !(work->settings.fused & LIBRARYS_ROOT)) && settings_fit(&work->settings))
        apart = are_apart(work);
    if (apart == 1 && !make_rates(work)) apart = 0;
    for (k = 0; k < work->number && apart == 1; k++) {
        Tensor *tensor = work->tensors + k;
        numbers += tensor->number;
        if (tensor->step) *tensor->step += 1.0f;
    }
    if (numbers > LONG) {
        Py_BEGIN_ALLOW_THREADS;
        work_together(work, numbers, threads);
        Py_END_ALLOW_THREADS;
    } else if (apart == 1) {
        work_together(work, numbers, threads);
    }
    free(work->tensors);
    return apart < 0 ? PyErr_NoMemory() : PyBool_FromLong(apart);
}

/* Append the values of `state` that have a name to their lists. 1; 0 where one is not there, -1 with an exception. */
static int collect_state(PyObject *state, PyObject *names, PyObject *lists) {
    Py_ssize_t place;
    if (!state || !PyDict_CheckExact(state)) return 0;
    for (place = 0; place < PyTuple_Size(names); place++) {
        PyObject *name = PyTuple_GetItem(names, place), *value;
        if (!PyUnicode_GetLength(name)) continue;
        value = PyDict_GetItemWithError(state, name);
        if (!value || value == Py_None) return PyErr_Occurred() ? -1 : 0;
        if (PyList_Append(PyTuple_GetItem(lists, place + 2), value)) return -1;
    }
    return 1;
}

static int collect_one(PyObject *parameter, PyObject *states, PyObject *names, PyObject *lists) {
    PyObject *gradient = PyObject_GetAttrString(parameter, "grad"), *state;
    int done = gradient ? 1 : -1;
    if (gradient && gradient != Py_None) {
        if (PyList_Append(PyTuple_GetItem(lists, 0), parameter) || PyList_Append(PyTuple_GetItem(lists, 1), gradient))
            done = -1;
        if (done == 1) {
            state = PyDict_GetItemWithError(states, parameter);
            done = PyErr_Occurred() ? -1 : collect_state(state, names, lists);
        }
    }
    Py_XDECREF(gradient);
    return done;
}

static PyObject *py_collect(PyObject *self, PyObject *args) {
    PyObject *parameters, *states, *names, *lists;
    Py_ssize_t place, number;
    int done = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!", &parameters, &states, &PyTuple_Type, &names)) return NULL;
    if (!PyList_CheckExact(parameters) || !PyDict_Check(states)) Py_RETURN_NONE;
    number = PyTuple_Size(names) + 2;
    lists = PyTuple_New(number);
    for (place = 0; lists && place < number; place++) {
        PyObject *list = PyList_New(0);
        if (!list || PyTuple_SetItem(lists, place, list)) Py_CLEAR(lists);
    }
    if (!lists) return NULL;
    for (place = 0; place < PyList_Size(parameters) && done == 1; place++) {
        PyObject *parameter = Py_NewRef(PyList_GetItem(parameters, place));
        done = collect_one(parameter, states, names, lists);
        Py_DECREF(parameter);
    }
    if (done == 1) return lists;
    Py_DECREF(lists);
    if (done < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_adam(PyObject *self, PyObject *args) {
    Work work = {0};
    Settings *given = &work.settings;
    PyObject *told;
    int maximize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!dddddppii", &PyList_Type, &told, &given->lr, &given->beta1, &given->beta2,
                          &given->eps, &given->decay, &given->decoupled, &maximize, &given->fused, &threads))
        return NULL;
    given->decoupled &= given->decay != 0;
    given->sign = maximize ? -1.0f : 1.0f;
    work.update = adam_update(given);
    return read_tensors(&work, told, 6) ? NULL : carry_out(&work, threads);
}

static PyObject *py_sgd(PyObject *self, PyObject *args) {
    Work work = {0};
    Settings *given = &work.settings;
    PyObject *told;
    int maximize, threads;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!ddddppii", &PyList_Type, &told, &given->lr, &given->beta1, &given->beta2,
                          &given->decay, &given->nesterov, &maximize, &given->fused, &threads))
        return NULL;
    given->sign = maximize ? -1.0f : 1.0f;
    work.update = sgd_update(given);
    return read_tensors(&work, told, given->beta1 != 0 ? 4 : 3) ? NULL : carry_out(&work, threads);
}

static void look_whether_flushed(void *given) {
    if (FLUSHES) __atomic_store_n((int *)given, 1, __ATOMIC_RELAXED);
}

static PyObject *py_flush(PyObject *self, PyObject *number) {
    const long threads = PyLong_AsLong(number);
    int flush = 0;
    (void)self;
    if (threads == -1 && PyErr_Occurred()) return NULL;
    look_whether_flushed(&flush);
#ifdef HAS_THREADS
    if (threads > 1 && parallel && getpid() == of_process)
        parallel(look_whether_flushed, &flush, (unsigned)threads, 0);
#endif
    return PyBool_FromLong(flush);
}

static PyObject *py_take_roots(PyObject *self, PyObject *address) {
    const int64_t number = PyLong_AsLongLong(address);
    (void)self;
    if (number == -1 && PyErr_Occurred()) return NULL;
    roots_of = (Roots)(intptr_t)number;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"adam", py_adam, METH_VARARGS,
     "adam(told, lr, beta1, beta2, eps, weight_decay, decoupled, maximize, fused, threads): `told` holds the addresses "
     "of weights, then of gradients, numbers of elements, addresses of both moments and of the counters of steps."},
    {"sgd", py_sgd, METH_VARARGS,
     "sgd(told, lr, momentum, dampening, weight_decay, nesterov, maximize, fused, threads): `told` as above, with the "
     "addresses of momenta where there are any."},
    {"collect", py_collect, METH_VARARGS,
     "collect(parameters, states, names): return lists of the parameters that have a gradient, of the gradients, and of "
     "what their states have under each name, nothing for \"\"; None where one of these is not there."},
    {"flush", py_flush, METH_O, "flush(threads): tell whether small numbers count as zero on one of the threads."},
    {"look", py_look, METH_VARARGS,
     "look(lists, counters, types): return what is told of the tensors in a tuple of lists, weights and gradients first, "
     "and in the list of counters, that are of one of two types; None where one is not plain, or shapes differ."},
    {"take_exchange", py_take_exchange, METH_O,
     "take_exchange(capsule): torch's functions for DLPack; tell whether they can be used."},
    {"take_roots", py_take_roots, METH_O, "take_roots(address): of the library's function that torch calls, or 0."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_steps", "Addresses in, steps made; see kinds.py.", 0, methods,
                             NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__steps(void) {
#ifdef HAS_THREADS
    parallel = (Parallel)(intptr_t)dlsym(RTLD_DEFAULT, "GOMP_parallel");
    of_process = getpid();
#endif
    return PyModule_Create(&module);
}
