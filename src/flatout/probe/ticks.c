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
 * There are two such threads, which take turns: plain Python may keep the lock for the switch interval (5 ms), and while
 * one waits for it, the other ticks on. With one alone, such Python was seen about once in those 5 ms, and what let go of
 * the lock after it was charged with the rest: 1.0 ms in place of 0.2 behind 6.1 ms of Python in a step (n=3, in a
 * virtual machine, where a signal from core to core often takes longer than 10 us).
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
#include <sys/syscall.h>
#endif

enum { NUM_MARKS = 2, NUM_MODULES = 2, LEAD = NUM_MARKS + NUM_MODULES, MOST_FRAMES = 128, MOST_CHAINS = 20000 };
enum { NOBODY = -1 };
enum { IDLE, TICKING, ENDING };
static const double PATIENCE_S = 2e-6; /* after which the lock is waited for; longer, and short operations are missed */
static const double LONGEST_S = 2.0;   /* a gap above this is a suspended process, not a long call */

static struct {
    int phase;
    int has_locks;
    PyThread_type_lock stopping, stopped; /* held by whoever has nothing to tell the other; never given back */
    PyThread_type_lock turn;              /* held by the thread that ticks */
    PyThreadState *watched;
    pthread_t thread; /* the watched one */
    long id;          /* the same, as Linux numbers it */
    PyObject *owner[NUM_MARKS], *name[NUM_MARKS]; /* the attributes whose values are noted */
    PyObject *chains;                             /* key of a chain of frames to its entry, as `seen` gives it */
    double period_s, spread, last;
} state;
static atomic_int by_signal; /* its number; 0: by a pending call; NOBODY: nobody is asked, only the lock is taken */
static atomic_int due;    /* a look is asked for, nobody has looked */
static atomic_int queued; /* the main thread has been asked, and has not come to it */
static atomic_int waiting; /* a thread waits for the lock; a second one would change nothing */
static atomic_int over, num_threads;
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

/* Put the chain of frames from `frame` (taken over) into `codes` and `offsets`, the first modules into `modules`. */
static int walk(PyObject *frame, PyObject **codes, int64_t *offsets, PyObject **modules) {
    int length = 0;
    for (int i = 0; i < NUM_MODULES; i++) modules[i] = NULL;
    while (frame && frame != Py_None && length < MOST_FRAMES) {
        PyObject *offset = PyObject_GetAttr(frame, str_lasti), *back;
        if (length < NUM_MODULES) modules[length] = module_of(frame);
        codes[length] = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        offsets[length++] = offset ? PyLong_AsLongLong(offset) : -1;
        Py_XDECREF(offset);
        back = PyObject_GetAttr(frame, str_back);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    for (int i = 0; i < NUM_MODULES; i++)
        if (!modules[i]) modules[i] = Py_NewRef(str_empty);
    return length;
}

/* Keep a chain that was not seen before; return its entry, borrowed, or NULL. */
static PyObject *keep(PyObject *key, PyObject **held, PyObject **codes, int length) {
    PyObject *entry, *tuple = PyTuple_New(length);
    if (!tuple) return NULL;
    for (int i = 0; i < length; i++) PyTuple_SetItem(tuple, i, Py_NewRef(codes[i]));
    entry = Py_BuildValue("[dn(OO)(OO)NO]", 0.0, (Py_ssize_t)0, held[0], held[1], held[2], held[3], tuple, key);
    if (entry && PyDict_SetItem(state.chains, key, entry)) Py_CLEAR(entry);
    if (entry) PyObject_GC_UnTrack(entry); /* the script's collections are not to grow by it */
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

/* Look at the watched thread; the caller has the interpreter's lock. Leaves exceptions as they are. */
static void look(void) {
    PyObject *held[LEAD], *codes[MOST_FRAMES], *key, *entry, *frame, *kind, *error, *trace;
    int64_t chain[LEAD + 2 * MOST_FRAMES], offsets[MOST_FRAMES];
    const double moment = now(), elapsed = moment - state.last;
    int length;
    const int collects = PyGC_Disable(); /* before 3.12 a look would collect, and the script's finalizers run here */
    state.last = moment;
    PyErr_Fetch(&kind, &error, &trace);
    frame = (PyObject *)PyThreadState_GetFrame(state.watched);
    if (!frame) goto end;
    for (int i = 0; i < NUM_MARKS; i++) {
        held[i] = PyObject_GetAttr(state.owner[i], state.name[i]);
        if (!held[i]) {
            PyErr_Clear();
            held[i] = Py_NewRef(Py_None);
        }
    }
    length = walk(frame, codes, offsets, held + NUM_MARKS);
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
end:
    PyErr_Restore(kind, error, trace); /* instead of what failed here */
    if (collects) PyGC_Enable();
}

static void look_if_due(void) {
    if (atomic_exchange(&due, 0)) look();
}

/* In the main thread, between two instructions of its own. */
static int asked(void *unused) {
    (void)unused;
    atomic_store(&queued, 0);
    if (state.phase == TICKING) look_if_due();
    return 0;
}

/* Ask the main thread; return other than 0 where that cannot be done. */
static int request(void) {
    const int number = atomic_load(&by_signal);
    if (number == NOBODY) return -1;
    if (!number) return Py_AddPendingCall(asked, NULL);
#if defined(__linux__)
    return (int)syscall(SYS_tgkill, getpid(), state.id, number); /* pthread_kill takes a lock, which a fork copies */
#else
    return pthread_kill(state.thread, number);
#endif
}

/* Return whether the main thread has not come to look by itself, at once. */
static int ask(void) {
    const double since = now();
    atomic_store(&due, 1);
    if (!atomic_exchange(&queued, 1) && request()) atomic_store(&queued, 0);
    while (atomic_load(&due) && now() - since < PATIENCE_S) continue;
    return atomic_load(&due);
}

/* Return 0 where it is over meanwhile. */
static int wait_period(void) {
    static uint64_t random = 88172645463325252u; /* xorshift, of its own: the script's generators stay as they are */
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    const double off = state.spread * (2 * ((double)(random >> 11) / 9007199254740992.0) - 1);
    return PyThread_acquire_lock_timed(state.stopping, (long long)(1e6 * state.period_s * (1 + off)), 0) !=
           PY_LOCK_ACQUIRED;
}

/* Tick, when it is this thread's turn, until a look has to wait for the lock; return 0 where it is over. */
static int take_turn(void) {
    PyThread_acquire_lock(state.turn, 1);
    int goes_on = !atomic_load(&over);
    while (goes_on && (goes_on = wait_period()))
        if (ask() && !atomic_exchange(&waiting, 1)) break;
    if (!goes_on) atomic_store(&over, 1);
    PyThread_release_lock(state.turn);
    return goes_on;
}

static void tick(void *unused) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyThreadState *own = PyEval_SaveThread();
    sigset_t all;
    (void)unused;
    sigfillset(&all); /* the script's signals are for the script's threads */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* wake when the time is over, not up to 50 us later */
#endif
    while (take_turn()) {
        PyEval_RestoreThread(own);
        look_if_due();
        PyEval_SaveThread();
        atomic_store(&waiting, 0);
    }
    PyEval_RestoreThread(own);
    PyGILState_Release(gil);
    if (atomic_fetch_sub(&num_threads, 1) == 1) PyThread_release_lock(state.stopped);
}

/* A child has no such thread, and locks in a state that nobody knows. */
static void in_child(void) {
    state.phase = IDLE;
    state.has_locks = 0;
    atomic_store(&due, 0);
    atomic_store(&queued, 0);
    atomic_store(&waiting, 0);
}

/* Forget what was watched; what was seen stays. */
static PyObject *py_stop(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (state.phase == ENDING) Py_RETURN_NONE;
    if (state.phase == TICKING) {
        state.phase = ENDING;
        PyThread_release_lock(state.stopping);
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(state.stopped, 1);
        Py_END_ALLOW_THREADS
    }
    state.phase = IDLE;
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
    if (!state.chains) return -1;
    if (state.has_locks) return 0;
    state.stopping = PyThread_allocate_lock();
    state.stopped = PyThread_allocate_lock();
    state.turn = PyThread_allocate_lock();
    if (!state.stopping || !state.stopped || !state.turn) return -1;
    PyThread_acquire_lock(state.stopping, 1);
    PyThread_acquire_lock(state.stopped, 1);
    state.has_locks = 1;
    return 0;
}

static PyObject *py_start(PyObject *self, PyObject *args) {
    PyObject *owner[NUM_MARKS], *name[NUM_MARKS], *nothing;
    double period_s, spread;
    int number;
    if (!PyArg_ParseTuple(args, "OUOUddi", &owner[0], &name[0], &owner[1], &name[1], &period_s, &spread, &number))
        return NULL;
    if (state.phase != IDLE)
        return PyErr_Format(PyExc_RuntimeError, "a thread of this process is watched already");
    if (!(nothing = py_stop(self, NULL))) return NULL;
    Py_DECREF(nothing);
    if (prepare()) return PyErr_NoMemory();
    for (int i = 0; i < NUM_MARKS; i++) {
        state.owner[i] = Py_NewRef(owner[i]);
        state.name[i] = Py_NewRef(name[i]);
    }
    state.watched = PyThreadState_Get();
    state.thread = pthread_self();
#if defined(__linux__)
    state.id = syscall(SYS_gettid);
#endif
    atomic_store(&by_signal, number);
    state.period_s = period_s, state.spread = spread, state.last = now();
    atomic_store(&queued, 0);
    atomic_store(&waiting, 0);
    atomic_store(&over, 0);
    atomic_store(&num_threads, 1);
    if (PyThread_start_new_thread(tick, NULL) == (unsigned long)-1)
        return PyErr_Format(PyExc_RuntimeError, "no thread could be started");
    state.phase = TICKING; /* one alone does, too */
    if (PyThread_start_new_thread(tick, NULL) != (unsigned long)-1) atomic_fetch_add(&num_threads, 1);
    Py_RETURN_NONE;
}

/* The handler of the signal; stays when nobody is watched any more, for a signal that is still under way. */
static PyObject *py_asked(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    asked(NULL);
    Py_RETURN_NONE;
}

static PyObject *py_seen(PyObject *self, PyObject *unused) {
    const int collects = PyGC_Disable(); /* while it is made, nothing may be added */
    PyObject *entries = state.chains ? PyDict_Values(state.chains) : PyList_New(0);
    (void)self, (void)unused;
    if (collects) PyGC_Enable();
    return entries;
}

/* From now on ask nobody. */
static PyObject *py_hush(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (atomic_load(&by_signal)) atomic_store(&by_signal, NOBODY);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", py_start, METH_VARARGS,
     "start(owner, name, owner, name, period_s, spread, signal): look at the calling thread, the main one, and at both "
     "attributes, about every `period_s` seconds, by a signal whose handler is `asked`, or, with 0, by pending calls. "
     "RuntimeError where one is watched already."},
    {"asked", py_asked, METH_VARARGS, "asked(signal, frame): look, if it is time"},
    {"hush", py_hush, METH_NOARGS, "hush(): send no more signals; what lets go of the lock is seen"},
    {"stop", py_stop, METH_NOARGS, "stop(): look no more; return when no look is under way"},
    {"seen", py_seen, METH_NOARGS,
     "seen(): a list [seconds, samples, (attributes), (modules of the two innermost frames), codes, key] of a chain "
     "of frames, innermost first; key: 64-bit numbers, 4 of no use, then address and offset of each frame"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_ticks", "A clock for the line sampler; see lines.py.", 0, methods,
                             NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__ticks(void) {
    if (pthread_atfork(NULL, NULL, in_child)) return PyErr_NoMemory();
    str_back = PyUnicode_InternFromString("f_back");
    str_lasti = PyUnicode_InternFromString("f_lasti");
    str_globals = PyUnicode_InternFromString("f_globals");
    str_name = PyUnicode_InternFromString("__name__");
    str_empty = PyUnicode_InternFromString("");
    return str_back && str_lasti && str_globals && str_name && str_empty ? PyModule_Create(&module) : NULL;
}
