/* A clock for the line sampler that needs no lock of the interpreter to tick: it sees the line that runs.
 *
 * A thread of Python must wait for the interpreter's lock, and gets it where the watched thread lets go of it: in the
 * operations of torch. Lines of plain Python are hardly ever seen. This thread asks the main thread itself to look,
 * which it does before its next call, loop or function; only where it is inside an operation for longer does this
 * thread take the lock, which such operations have let go of, and look from here.
 *
 * Asked is by a pending call. Pythons before 3.13 notice one from another thread only when the main thread takes the
 * lock anew, which is the same fault again; there it is asked by a signal to that one thread (lines.py says which).
 *
 * A look runs no Python: what Python would run in the main thread, a compiler of the script's could meet, a signal
 * handler of the script's could end. A look notes code objects and instruction offsets of the chain of frames, and what
 * the two attributes that `start` was given hold; lines.py makes lines of them afterwards.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { NUM_MARKS = 2, MOST_FRAMES = 256, MOST_CHAINS = 50000, LEAD = NUM_MARKS + 1 };
static const double PATIENCE_S = 10e-6; /* plain Python comes to its next call or loop sooner than that */
static const double LONGEST_S = 2.0;    /* a gap above this is a suspended process, not a long call */

static struct {
    pid_t pid; /* of the process that the thread runs in; 0: none */
    PyThread_type_lock stopping, stopped;
    PyThreadState *watched;
    pthread_t thread; /* the watched one */
    int signal;       /* that asks it; 0: a pending call does */
    PyObject *owner[NUM_MARKS], *name[NUM_MARKS]; /* the attributes whose values are noted */
    PyObject *chains;                             /* key of a chain of frames to its entry, as `seen` gives it */
    double period_s, spread, last;
} state;
static atomic_int due;    /* a look is asked for, nobody has looked */
static atomic_int queued; /* the main thread has been asked, and has not come to it */
static PyObject *str_back, *str_lasti, *str_globals, *str_name, *str_empty;

static double now(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (double)moment.tv_sec + 1e-9 * (double)moment.tv_nsec;
}

/* The module of a frame, as its globals name it; a new reference, never NULL. */
static PyObject *module_of(PyObject *frame) {
    PyObject *globals = PyObject_GetAttr(frame, str_globals), *name = NULL;
    if (globals && PyDict_Check(globals)) name = PyDict_GetItemWithError(globals, str_name);
    name = Py_NewRef(name && PyUnicode_Check(name) ? name : str_empty);
    Py_XDECREF(globals);
    return name;
}

/* Put the chain of frames from `frame` (taken over) into `codes` and `offsets`; return its length. */
static int walk(PyObject *frame, PyObject **codes, int64_t *offsets) {
    int length = 0;
    while (frame && frame != Py_None && length < MOST_FRAMES) {
        PyObject *offset = PyObject_GetAttr(frame, str_lasti), *back;
        codes[length] = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        offsets[length++] = offset ? PyLong_AsLongLong(offset) : -1;
        Py_XDECREF(offset);
        back = PyObject_GetAttr(frame, str_back);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return length;
}

/* Keep a chain that was not seen before; return its entry, borrowed, or NULL. */
static PyObject *keep(PyObject *key, PyObject **held, PyObject **codes, int length) {
    PyObject *entry, *tuple = PyTuple_New(length);
    if (!tuple) return NULL;
    for (int i = 0; i < length; i++) PyTuple_SetItem(tuple, i, Py_NewRef(codes[i]));
    entry = Py_BuildValue("[dn(OO)ONO]", 0.0, (Py_ssize_t)0, held[0], held[1], held[2], tuple, key);
    if (entry && PyDict_SetItem(state.chains, key, entry)) Py_CLEAR(entry);
    Py_XDECREF(entry); /* the dictionary has it */
    return entry;
}

static void count(PyObject *entry, double seconds) {
    const double before = PyFloat_AsDouble(PyList_GetItem(entry, 0));
    const Py_ssize_t samples = PyLong_AsSsize_t(PyList_GetItem(entry, 1));
    PyObject *sum = PyFloat_FromDouble(before + seconds), *number = PyLong_FromSsize_t(samples + 1);
    if (sum && number) {
        PyList_SetItem(entry, 0, sum);
        PyList_SetItem(entry, 1, number);
        return;
    }
    Py_XDECREF(sum);
    Py_XDECREF(number);
}

/* Look at the watched thread; the caller has the interpreter's lock. Leaves no exception behind. */
static void look(void) {
    PyObject *held[LEAD], *codes[MOST_FRAMES], *key, *entry, *frame;
    int64_t chain[LEAD + 2 * MOST_FRAMES], offsets[MOST_FRAMES];
    const double moment = now(), elapsed = moment - state.last;
    int length;
    state.last = moment;
    frame = (PyObject *)PyThreadState_GetFrame(state.watched);
    if (!frame) return;
    for (int i = 0; i < NUM_MARKS; i++) {
        held[i] = PyObject_GetAttr(state.owner[i], state.name[i]);
        if (!held[i]) {
            PyErr_Clear();
            held[i] = Py_NewRef(Py_None);
        }
    }
    held[NUM_MARKS] = module_of(frame);
    length = walk(frame, codes, offsets);
    for (int i = 0; i < LEAD; i++) chain[i] = (int64_t)(intptr_t)held[i];
    for (int i = 0; i < length; i++) {
        chain[LEAD + 2 * i] = (int64_t)(intptr_t)codes[i];
        chain[LEAD + 2 * i + 1] = offsets[i];
    }
    key = PyBytes_FromStringAndSize((const char *)chain, (LEAD + 2 * length) * (Py_ssize_t)sizeof *chain);
    if (key) {
        entry = PyDict_GetItemWithError(state.chains, key);
        if (!entry && PyDict_Size(state.chains) < MOST_CHAINS) entry = keep(key, held, codes, length);
        if (entry) count(entry, elapsed < LONGEST_S ? elapsed : LONGEST_S);
        Py_DECREF(key);
    }
    for (int i = 0; i < LEAD; i++) Py_DECREF(held[i]);
    for (int i = 0; i < length; i++) Py_DECREF(codes[i]);
    PyErr_Clear();
}

static void look_if_due(void) {
    if (atomic_exchange(&due, 0)) look();
}

/* In the main thread, between two instructions of its own. */
static int asked(void *unused) {
    (void)unused;
    if (state.pid != getpid()) return 0; /* asked before a fork */
    atomic_store(&queued, 0);
    look_if_due();
    return 0;
}

static void ask(PyThreadState *own) {
    const double since = now();
    atomic_store(&due, 1);
    if (!atomic_exchange(&queued, 1) &&
        (state.signal ? pthread_kill(state.thread, state.signal) : Py_AddPendingCall(asked, NULL)))
        atomic_store(&queued, 0);
    while (atomic_load(&due) && now() - since < PATIENCE_S) continue;
    if (!atomic_load(&due)) return;
    PyEval_RestoreThread(own);
    look_if_due();
    PyEval_SaveThread();
}

static void tick(void *unused) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyThreadState *own = PyEval_SaveThread();
    uint64_t random = 88172645463325252u; /* xorshift, of its own: the script's generators stay as they are */
    double wait_s;
    (void)unused;
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* wake when the time is over, not up to 50 us later */
#endif
    do {
        ask(own);
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        wait_s = state.period_s * (1 + state.spread * (2 * ((double)(random >> 11) / 9007199254740992.0) - 1));
    } while (PyThread_acquire_lock_timed(state.stopping, (long long)(1e6 * wait_s), 0) != PY_LOCK_ACQUIRED);
    PyEval_RestoreThread(own);
    PyGILState_Release(gil);
    PyThread_release_lock(state.stopped);
}

/* Forget what was watched; what was seen stays. In a child after a fork there is no thread to wait for. */
static PyObject *py_stop(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (state.pid && state.pid == getpid()) {
        PyThread_release_lock(state.stopping);
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(state.stopped, 1);
        Py_END_ALLOW_THREADS
        PyThread_free_lock(state.stopping);
        PyThread_free_lock(state.stopped);
    }
    state.pid = 0;
    atomic_store(&due, 0);
    for (int i = 0; i < NUM_MARKS; i++) {
        Py_CLEAR(state.owner[i]);
        Py_CLEAR(state.name[i]);
    }
    Py_RETURN_NONE;
}

static int prepare(void) {
    Py_CLEAR(state.chains);
    state.chains = PyDict_New();
    state.stopping = PyThread_allocate_lock();
    state.stopped = PyThread_allocate_lock();
    if (!state.chains || !state.stopping || !state.stopped) return -1;
    PyThread_acquire_lock(state.stopping, 1);
    PyThread_acquire_lock(state.stopped, 1);
    return 0;
}

static PyObject *py_start(PyObject *self, PyObject *args) {
    PyObject *owner[NUM_MARKS], *name[NUM_MARKS], *nothing;
    double period_s, spread;
    int number;
    if (!PyArg_ParseTuple(args, "OUOUddi", &owner[0], &name[0], &owner[1], &name[1], &period_s, &spread, &number))
        return NULL;
    if (state.pid == getpid()) return PyErr_Format(PyExc_RuntimeError, "a thread of this process is watched already");
    if (!(nothing = py_stop(self, NULL))) return NULL;
    Py_DECREF(nothing);
    if (prepare()) return PyErr_NoMemory();
    for (int i = 0; i < NUM_MARKS; i++) {
        state.owner[i] = Py_NewRef(owner[i]);
        state.name[i] = Py_NewRef(name[i]);
    }
    state.watched = PyThreadState_Get();
    state.thread = pthread_self();
    state.signal = number;
    state.period_s = period_s, state.spread = spread, state.last = now();
    atomic_store(&queued, 0);
    state.pid = getpid();
    if (PyThread_start_new_thread(tick, NULL) == (unsigned long)-1) {
        state.pid = 0;
        return PyErr_Format(PyExc_RuntimeError, "no thread could be started");
    }
    Py_RETURN_NONE;
}

/* The handler of the signal; stays when nobody is watched any more, for a signal that is still under way. */
static PyObject *py_asked(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    asked(NULL);
    Py_RETURN_NONE;
}

static PyObject *py_seen(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return state.chains ? PyDict_Values(state.chains) : PyList_New(0);
}

static PyMethodDef methods[] = {
    {"start", py_start, METH_VARARGS,
     "start(owner, name, owner, name, period_s, spread, signal): look at the calling thread, the main one, and at both "
     "attributes, about every `period_s` seconds, by a signal whose handler is `asked`, or, with 0, by pending calls. "
     "RuntimeError where one is watched already."},
    {"asked", py_asked, METH_VARARGS, "asked(signal, frame): look, if it is time"},
    {"stop", py_stop, METH_NOARGS, "stop(): look no more; return when no look is under way"},
    {"seen", py_seen, METH_NOARGS,
     "seen(): a list [seconds, samples, (values of both attributes), module of the innermost frame, codes, key] of a "
     "chain of frames, innermost first; key: 64-bit numbers, 3 of no use, then address and offset of each frame"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_ticks", "A clock for the line sampler; see lines.py.", 0, methods,
                             NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__ticks(void) {
    str_back = PyUnicode_InternFromString("f_back");
    str_lasti = PyUnicode_InternFromString("f_lasti");
    str_globals = PyUnicode_InternFromString("f_globals");
    str_name = PyUnicode_InternFromString("__name__");
    str_empty = PyUnicode_InternFromString("");
    return str_back && str_lasti && str_globals && str_name && str_empty ? PyModule_Create(&module) : NULL;
}
