/* What a data set's objects consist of in memory, followed quickly, and whether any of it has been written to since.
 *
 * Two types. `Tracer` follows lists, tuples, dictionaries, sets and plain instances down to whatever else they hold, and
 * notes the ranges of memory that say what they contain: never a reference count, never what the collector writes.
 * `Watch` compares such ranges: those of the core with a copy, byte by byte; large and scattered ones by the pages that
 * the kernel says were written (PAGEMAP_SCAN, Linux 6.7), and of those only what hashes otherwise.
 *
 * Where containers have their tables is private to an interpreter: layouts.py tries each kind in every process before
 * it is believed. Ranges come parents first, so an object is read only after what refers to it is known to do so still.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#define HAS_PAGES
#endif

enum { LEAF, LIST, TUPLE, DICT, SET, INSTANCE, IGNORED }; /* as in layouts.py */
enum { HEAD = 16, WORD = 8, DICT_HEAD = 32, KEYS_HEAD = 32, PAGE = 4096, WHOLE = 65536 };

typedef struct {
    uint64_t start, length;
} Range;

/* -- growing arrays, a set of addresses ------------------------------------------------------------------------- */

typedef struct {
    Range *items;
    uint64_t *owners;
    size_t number, room;
} Ranges;

static int add_range(Ranges *ranges, uint64_t start, uint64_t length, uint64_t owner) {
    if (!length) return 0;
    if (ranges->number == ranges->room) {
        const size_t room = ranges->room ? 2 * ranges->room : 256;
        Range *items = realloc(ranges->items, room * sizeof *items);
        if (!items) return -1;
        ranges->items = items;
        uint64_t *owners = realloc(ranges->owners, room * sizeof *owners);
        if (!owners) return -1;
        ranges->owners = owners;
        ranges->room = room;
    }
    ranges->items[ranges->number] = (Range){start, length};
    ranges->owners[ranges->number++] = owner;
    return 0;
}

typedef struct {
    uint64_t *slots;
    size_t number, room;
} Seen;

static size_t place_of(const Seen *seen, uint64_t key) {
    size_t place = (size_t)((key >> 4) * 0x9E3779B97F4A7C15ull) & (seen->room - 1);
    while (seen->slots[place] && seen->slots[place] != key) place = (place + 1) & (seen->room - 1);
    return place;
}

static int grow(Seen *seen) {
    Seen larger = {calloc(seen->room ? 2 * seen->room : 1024, sizeof(uint64_t)), seen->number,
                   seen->room ? 2 * seen->room : 1024};
    if (!larger.slots) return -1;
    for (size_t i = 0; i < seen->room; i++)
        if (seen->slots[i]) larger.slots[place_of(&larger, seen->slots[i])] = seen->slots[i];
    free(seen->slots);
    *seen = larger;
    return 0;
}

/* Return 1 where `key` is new, 0 where it is known, -1 without memory. */
static int see(Seen *seen, uint64_t key) {
    if (2 * seen->number >= seen->room && grow(seen)) return -1;
    const size_t place = place_of(seen, key);
    if (seen->slots[place]) return 0;
    seen->slots[place] = key;
    seen->number++;
    return 1;
}

/* -- following -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *kinds;  /* type -> kind */
    PyObject *held;   /* leaves, kept so that their addresses are nobody else's */
    PyObject *others; /* objects of types without a kind */
    PyObject *queue;  /* containers whose inside is to be followed */
    Seen seen;
    Ranges ranges;
} Tracer;

static uint64_t word(uint64_t address) {
    uint64_t value;
    memcpy(&value, (const void *)(uintptr_t)address, sizeof value);
    return value;
}

static uint8_t byte(uint64_t address) { return *(const uint8_t *)(uintptr_t)address; }

static long kind_of(const Tracer *tracer, PyObject *object) {
    PyObject *kind = PyDict_GetItemWithError(tracer->kinds, (PyObject *)Py_TYPE(object));
    if (kind) return PyLong_AsLong(kind);
    return PyErr_Occurred() ? -2 : -1;
}

static int all_leaves(const Tracer *tracer, PyObject *tuple) {
    for (Py_ssize_t i = 0, number = PyTuple_Size(tuple); i < number; i++) {
        const long kind = kind_of(tracer, PyTuple_GetItem(tuple, i));
        if (kind == -2) return -1;
        if (kind != LEAF) return 0;
    }
    return 1;
}

/* Meet an object: leaves are held, containers queued, what has no kind is left to who asks. */
static int meet(Tracer *tracer, PyObject *object) {
    long kind = kind_of(tracer, object);
    if (kind == -2) return -1;
    if (kind == IGNORED) return 0;
    if (kind == TUPLE) {
        const int leaves = all_leaves(tracer, object);
        if (leaves < 0) return -1;
        if (leaves) kind = LEAF;
    }
    if (kind == LEAF) return PyList_Append(tracer->held, object);
    const int new = see(&tracer->seen, (uint64_t)(uintptr_t)object);
    if (new <= 0) {
        if (new < 0) PyErr_NoMemory();
        return new;
    }
    return PyList_Append(kind < 0 ? tracer->others : tracer->queue, object);
}

static int meet_all(Tracer *tracer, PyObject *iterable) {
    PyObject *iterator = PyObject_GetIter(iterable), *item;
    if (!iterator) return -1;
    while ((item = PyIter_Next(iterator))) {
        const int failed = meet(tracer, item);
        Py_DECREF(item);
        if (failed) break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

#define NOTE(start, length) \
    if (add_range(&tracer->ranges, start, length, owner)) return PyErr_NoMemory(), -1

static int follow_list(Tracer *tracer, PyObject *list, uint64_t owner) {
    const Py_ssize_t number = PyList_Size(list);
    const uint64_t at = (uint64_t)(uintptr_t)list;
    NOTE(at + HEAD, 2 * WORD); /* how many, and where */
    NOTE(word(at + HEAD + WORD), (uint64_t)number * WORD);
    for (Py_ssize_t i = 0; i < number && i < PyList_Size(list); i++)
        if (meet(tracer, PyList_GetItem(list, i))) return -1;
    return 0;
}

static int follow_tuple(Tracer *tracer, PyObject *tuple, uint64_t owner) {
    const Py_ssize_t number = PyTuple_Size(tuple);
    NOTE((uint64_t)(uintptr_t)tuple + HEAD, (uint64_t)(number + 1) * WORD);
    for (Py_ssize_t i = 0; i < number; i++)
        if (meet(tracer, PyTuple_GetItem(tuple, i))) return -1;
    return 0;
}

static int note_dict(Tracer *tracer, uint64_t at, uint64_t owner) {
    const uint64_t keys = word(at + HEAD + 2 * WORD), values = word(at + HEAD + 3 * WORD);
    const uint64_t entries = word(keys + 3 * WORD);
    NOTE(at + HEAD, DICT_HEAD); /* how many, which version, and where */
    if (values) {
        NOTE(values, (entries + (Py_Version >= 0x030D0000)) * WORD); /* from 3.13 on, sizes come first */
    } else {
        NOTE(keys + KEYS_HEAD + ((uint64_t)1 << byte(keys + 9)), entries * (byte(keys + 10) ? 2 : 3) * WORD);
    }
    return 0;
}

static int follow_dict(Tracer *tracer, PyObject *dict, uint64_t owner) {
    PyObject *key, *value;
    Py_ssize_t place = 0;
    if (note_dict(tracer, (uint64_t)(uintptr_t)dict, owner)) return -1;
    while (PyDict_Next(dict, &place, &key, &value))
        if (meet(tracer, key) || meet(tracer, value)) return -1;
    return 0;
}

static int follow_set(Tracer *tracer, PyObject *set, uint64_t owner) {
    const uint64_t at = (uint64_t)(uintptr_t)set;
    NOTE(at + HEAD, 4 * WORD); /* filled, used, mask, and where */
    NOTE(word(at + HEAD + 3 * WORD), (word(at + HEAD + 2 * WORD) + 1) * 2 * WORD);
    return meet_all(tracer, set);
}

static int follow_instance(Tracer *tracer, PyObject *object, uint64_t owner) {
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    if (!dict) return -1;
    Py_DECREF(dict); /* the instance has it */
    NOTE((uint64_t)(uintptr_t)object - 3 * WORD, WORD);
    NOTE((uint64_t)(uintptr_t)object + WORD, WORD); /* its class */
    const int new = see(&tracer->seen, (uint64_t)(uintptr_t)dict);
    if (new < 0) PyErr_NoMemory();
    return new <= 0 ? new : follow_dict(tracer, dict, owner);
}

static int follow(Tracer *tracer, PyObject *object) {
    const long kind = kind_of(tracer, object);
    const uint64_t owner = (uint64_t)(uintptr_t)object;
    switch (kind) {
        case LIST: return follow_list(tracer, object, owner);
        case TUPLE: return follow_tuple(tracer, object, owner);
        case DICT: return follow_dict(tracer, object, owner);
        case SET: return follow_set(tracer, object, owner);
        case INSTANCE: return follow_instance(tracer, object, owner);
        default: return -1;
    }
}

static PyObject *tracer_follow(PyObject *self, PyObject *objects) {
    Tracer *tracer = (Tracer *)self;
    if (meet_all(tracer, objects)) return NULL;
    for (Py_ssize_t place = 0; place < PyList_Size(tracer->queue); place++)
        if (follow(tracer, PyList_GetItem(tracer->queue, place))) return NULL;
    if (PyList_SetSlice(tracer->queue, 0, PyList_Size(tracer->queue), NULL)) return NULL;
    PyObject *found = tracer->others, *fresh = PyList_New(0);
    if (!fresh) return NULL;
    tracer->others = fresh;
    return found;
}

/* note(owner, start, length): ranges that who asks knows of. */
static PyObject *tracer_note(PyObject *self, PyObject *arguments) {
    unsigned long long owner, start, length;
    if (!PyArg_ParseTuple(arguments, "KKK", &owner, &start, &length)) return NULL;
    if (add_range(&((Tracer *)self)->ranges, start, length, owner)) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* inside(container, kind): follow an object of another type whose memory begins as that kind's does. */
static PyObject *tracer_inside(PyObject *self, PyObject *arguments) {
    Tracer *tracer = (Tracer *)self;
    PyObject *object;
    int kind, failed = -1;
    if (!PyArg_ParseTuple(arguments, "Oi", &object, &kind)) return NULL;
    const uint64_t owner = (uint64_t)(uintptr_t)object;
    if (kind == LIST) failed = follow_list(tracer, object, owner);
    else if (kind == TUPLE) failed = follow_tuple(tracer, object, owner);
    else if (kind == DICT) failed = follow_dict(tracer, object, owner);
    else if (kind == SET) failed = follow_set(tracer, object, owner);
    else if (kind == INSTANCE) failed = follow_instance(tracer, object, owner);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* pass_over(objects): do not follow them where they are met. */
static PyObject *tracer_pass_over(PyObject *self, PyObject *objects) {
    PyObject *iterator = PyObject_GetIter(objects), *item;
    if (!iterator) return NULL;
    while ((item = PyIter_Next(iterator))) {
        const int new = see(&((Tracer *)self)->seen, (uint64_t)(uintptr_t)item);
        Py_DECREF(item);
        if (new < 0) PyErr_NoMemory();
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static int same_key(uint64_t one, PyObject *key) {
    PyObject *other = (PyObject *)(uintptr_t)one;
    return other && PyUnicode_Check(other) && PyUnicode_Check(key) && !PyUnicode_Compare(other, key);
}

/* Return where a dictionary has the value of `key`, 0 where that is not found. */
static uint64_t slot_of(PyObject *dict, PyObject *key) {
    const uint64_t at = (uint64_t)(uintptr_t)dict;
    const uint64_t keys = word(at + HEAD + 2 * WORD), values = word(at + HEAD + 3 * WORD), number = word(keys + 3 * WORD);
    const uint64_t size = (byte(keys + 10) ? 2 : 3) * WORD;
    const uint64_t entries = keys + KEYS_HEAD + ((uint64_t)1 << byte(keys + 9)) + size - 2 * WORD;
    PyObject *value = PyDict_GetItemWithError(dict, key);
    if (!value) return 0;
    uint64_t i = 0;
    while (i < number && word(entries + i * size) != (uint64_t)(uintptr_t)key) i++;
    if (i == number) /* another string of the same letters */
        for (i = 0; i < number && !same_key(word(entries + i * size), key);) i++;
    if (i == number) return 0;
    if (!values) return word(entries + i * size + WORD) == (uint64_t)(uintptr_t)value ? entries + i * size + WORD : 0;
    for (uint64_t shift = 0; shift <= WORD; shift += WORD)
        if (word(values + i * WORD + shift) == (uint64_t)(uintptr_t)value) return values + i * WORD + shift;
    return 0;
}

/* some(owner, dict, keys): note where the values of those keys stand, and meet them; how many have no known place. */
static PyObject *tracer_some(PyObject *self, PyObject *arguments) {
    Tracer *tracer = (Tracer *)self;
    PyObject *dict, *keys;
    unsigned long long owner;
    long lost = 0;
    if (!PyArg_ParseTuple(arguments, "KO!O!", &owner, &PyDict_Type, &dict, &PyList_Type, &keys)) return NULL;
    if (add_range(&tracer->ranges, (uint64_t)(uintptr_t)dict + HEAD + 2 * WORD, 2 * WORD, owner)) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < PyList_Size(keys); i++) {
        PyObject *key = PyList_GetItem(keys, i), *value = PyDict_GetItemWithError(dict, key);
        const uint64_t slot = slot_of(dict, key);
        if (PyErr_Occurred()) return NULL;
        if (!slot) lost++;
        else if (add_range(&tracer->ranges, slot, WORD, owner)) return PyErr_NoMemory();
        if (value && meet(tracer, value)) return NULL;
    }
    return PyLong_FromLong(lost);
}

static PyObject *tracer_ranges(PyObject *self, PyObject *Py_UNUSED(none)) {
    const Ranges *ranges = &((Tracer *)self)->ranges;
    PyObject *pairs = PyBytes_FromStringAndSize((const char *)ranges->items, (Py_ssize_t)(ranges->number * sizeof(Range)));
    PyObject *owners = PyBytes_FromStringAndSize((const char *)ranges->owners, (Py_ssize_t)(ranges->number * WORD));
    return Py_BuildValue("(NNO)", pairs, owners, ((Tracer *)self)->held);
}

/* named(): what of the leaves may be the name of a file: text with a slash, and what is no plain value. */
static PyObject *tracer_named(PyObject *self, PyObject *Py_UNUSED(none)) {
    PyObject *held = ((Tracer *)self)->held, *found = PyList_New(0);
    for (Py_ssize_t i = 0, number = PyList_Size(held); found && i < number; i++) {
        PyObject *leaf = PyList_GetItem(held, i);
        const int text = PyUnicode_CheckExact(leaf);
        const int plain = PyLong_Check(leaf) || PyFloat_CheckExact(leaf) || PyBytes_CheckExact(leaf) || leaf == Py_None;
        const int named = text ? PyUnicode_FindChar(leaf, '/', 0, PyUnicode_GetLength(leaf), 1) >= 0 : !plain;
        if (named && PyList_Append(found, leaf)) Py_CLEAR(found);
    }
    return found;
}

static int tracer_init(PyObject *self, PyObject *arguments, PyObject *Py_UNUSED(named)) {
    Tracer *tracer = (Tracer *)self;
    if (!PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &tracer->kinds)) return -1;
    Py_INCREF(tracer->kinds);
    tracer->held = PyList_New(0);
    tracer->others = PyList_New(0);
    tracer->queue = PyList_New(0);
    return tracer->held && tracer->others && tracer->queue ? 0 : -1;
}

static void tracer_free(PyObject *self) {
    Tracer *tracer = (Tracer *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(tracer->kinds);
    Py_CLEAR(tracer->held);
    Py_CLEAR(tracer->others);
    Py_CLEAR(tracer->queue);
    free(tracer->seen.slots);
    free(tracer->ranges.items);
    free(tracer->ranges.owners);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef tracer_methods[] = {
    {"follow", tracer_follow, METH_O,
     "follow(objects): follow them and what they hold; return those met whose types have no kind, each once."},
    {"note", tracer_note, METH_VARARGS, "note(owner, start, length): note a range of memory."},
    {"inside", tracer_inside, METH_VARARGS, "inside(object, kind): follow an object that is laid out as that kind."},
    {"pass_over", tracer_pass_over, METH_O, "pass_over(objects): do not follow them where they are met."},
    {"some", tracer_some, METH_VARARGS,
     "some(owner, dict, keys): note where the values of those keys stand, and follow them; how many stand nowhere."},
    {"named", tracer_named, METH_NOARGS,
     "named(): what of the leaves may be the name of a file: text with a slash, and what is no plain value."},
    {"ranges", tracer_ranges, METH_NOARGS, "ranges(): pairs of start and length, their owners, and what is held."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tracer_slots[] = {
    {Py_tp_doc, "Tracer(kinds): follows objects and notes the memory that says what they contain."},
    {Py_tp_init, tracer_init},
    {Py_tp_dealloc, tracer_free},
    {Py_tp_methods, tracer_methods},
    {0, NULL},
};

static PyType_Spec tracer_spec = {"flatout.watch.memory._memory.Tracer", sizeof(Tracer), 0, Py_TPFLAGS_DEFAULT,
                                  tracer_slots};

/* -- watching --------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t start, end, most; /* most: the furthest end of all ranges up to this one */
    uint64_t head, tail;       /* hashes: of a short range whole, of a long one of what shares its outer pages */
    uint64_t owner;
} Large;

typedef struct Watch {
    PyObject_HEAD
    struct Watch *next; /* of all that live: what one of them is told by the kernel is news to the others, too */
    Ranges news;
    Range *core;
    uint64_t *owners;
    unsigned char *copy;
    size_t number, copied;
    Large *large;
    size_t num_large;
    Range *intervals;
    size_t num_intervals;
    int pagemap;
    uint64_t limit; /* bytes from which on a range is told by its pages */
    long faults;
} Watch;

static Watch *living;

static uint64_t hash_of(uint64_t start, uint64_t length) {
    const unsigned char *at = (const unsigned char *)(uintptr_t)start;
    uint64_t one = 0x2545F4914F6CDD1Dull ^ length, other = 0x9E3779B97F4A7C15ull, value;
    for (; length >= 8; length -= 8, at += 8) {
        memcpy(&value, at, 8);
        one = (one ^ value) * 0xD6E8FEB86659FD93ull;
        one ^= one >> 32;
        other = (other + value) * 0xA0761D6478BD642Full;
        other ^= other >> 29;
    }
    value = 0;
    memcpy(&value, at, (size_t)length);
    one = (one ^ value) * 0xD6E8FEB86659FD93ull;
    return one ^ (one >> 31) ^ (other << 1);
}

static uint64_t first_page(uint64_t start) { return (start + PAGE - 1) & ~(uint64_t)(PAGE - 1); }

static void hash_large(Large *large, uint64_t limit) {
    if (large->end - large->start <= limit) {
        large->head = hash_of(large->start, large->end - large->start);
        return;
    }
    const uint64_t last = large->end & ~(uint64_t)(PAGE - 1);
    large->head = hash_of(large->start, first_page(large->start) - large->start);
    large->tail = hash_of(last, large->end - last);
}

/* Tell whether a range has changed, given that pages from `start` to `end` were written. */
static int is_changed(const Large *large, uint64_t limit, uint64_t start, uint64_t end) {
    Large now = *large;
    const int whole = large->end - large->start <= limit;
    if (!whole) {
        const uint64_t inner = first_page(large->start), last = large->end & ~(uint64_t)(PAGE - 1);
        if (start < last && end > inner) return 1;
    }
    hash_large(&now, limit);
    return now.head != large->head || (!whole && now.tail != large->tail);
}

static int by_start(const void *one, const void *other) {
    const Large *a = one, *b = other;
    return a->start < b->start ? -1 : a->start > b->start;
}

static Py_ssize_t pairs_of(PyObject *bytes, Range **items) {
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size)) return -1;
    *items = malloc((size_t)size + 1);
    if (!*items) return PyErr_NoMemory(), -1;
    memcpy(*items, data, (size_t)size);
    return size / (Py_ssize_t)sizeof(Range);
}

static uint64_t *owners_of(PyObject *bytes, Py_ssize_t number) {
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size)) return NULL;
    if (size != number * WORD) return PyErr_SetString(PyExc_ValueError, "as many owners as ranges"), NULL;
    uint64_t *owners = malloc((size_t)size + 1);
    if (!owners) return (uint64_t *)PyErr_NoMemory();
    memcpy(owners, data, (size_t)size);
    return owners;
}

static long faults_now(void) {
#ifdef HAS_PAGES
    struct rusage usage;
    if (!getrusage(RUSAGE_SELF, &usage)) return usage.ru_minflt + usage.ru_majflt;
#endif
    return -1;
}

static void copy_core(Watch *watch) {
    size_t at = 0;
    for (size_t i = 0; i < watch->number; i++) {
        memcpy(watch->copy + at, (const void *)(uintptr_t)watch->core[i].start, (size_t)watch->core[i].length);
        at += (size_t)watch->core[i].length;
    }
}

/* Take everything as it stands now. */
static int renew(Watch *watch) {
    copy_core(watch);
    for (size_t i = 0; i < watch->num_large; i++) hash_large(&watch->large[i], watch->limit);
    watch->faults = -1;
    watch->news.number = 0;
    return 0;
}

/* Have these ranges as the core, in place of any before; nothing is copied yet. */
static int take_core(Watch *watch, PyObject *core, PyObject *owners) {
    Range *items = NULL;
    uint64_t *of = NULL;
    const Py_ssize_t number = pairs_of(core, &items);
    size_t length = 0;
    for (Py_ssize_t i = 0; i < number; i++) length += (size_t)items[i].length;
    unsigned char *copy = number < 0 ? NULL : malloc(length + 1);
    if (!copy || !(of = owners_of(owners, number))) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        free(items);
        free(copy);
        return -1;
    }
    free(watch->core);
    free(watch->owners);
    free(watch->copy);
    watch->core = items;
    watch->owners = of;
    watch->copy = copy;
    watch->number = (size_t)number;
    watch->copied = length;
    return 0;
}

static int watch_init(PyObject *self, PyObject *arguments, PyObject *Py_UNUSED(named)) {
    Watch *watch = (Watch *)self;
    PyObject *core, *owners, *large, *large_owners, *intervals;
    Range *pairs = NULL;
    watch->pagemap = -1;
    if (!PyArg_ParseTuple(arguments, "OOOOOi", &core, &owners, &large, &large_owners, &intervals, &watch->pagemap))
        return -1;
    watch->limit = watch->pagemap < 0 ? UINT64_MAX : WHOLE; /* without pages, all of it is read */
    if (take_core(watch, core, owners)) return -1;
    Py_ssize_t number = pairs_of(large, &pairs);
    uint64_t *of_large = number < 0 ? NULL : owners_of(large_owners, number);
    if (!of_large || !(watch->large = calloc((size_t)number + 1, sizeof(Large)))) {
        free(pairs);
        free(of_large);
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    for (Py_ssize_t i = 0; i < number; i++)
        watch->large[i] = (Large){pairs[i].start, pairs[i].start + pairs[i].length, 0, 0, 0, of_large[i]};
    free(pairs);
    free(of_large);
    watch->num_large = (size_t)number;
    qsort(watch->large, watch->num_large, sizeof(Large), by_start);
    uint64_t most = 0;
    for (size_t i = 0; i < watch->num_large; i++)
        watch->large[i].most = most = watch->large[i].end > most ? watch->large[i].end : most;
    number = pairs_of(intervals, &watch->intervals);
    if (number < 0) return -1;
    watch->num_intervals = (size_t)number;
    if (number) {
        watch->next = living;
        living = watch;
    }
    return renew(watch);
}

static void watch_free(PyObject *self) {
    Watch *watch = (Watch *)self, **link = &living;
    PyTypeObject *type = Py_TYPE(self);
    while (*link && *link != watch) link = &(*link)->next;
    if (*link) *link = watch->next;
    free(watch->news.items);
    free(watch->news.owners);
    free(watch->core);
    free(watch->owners);
    free(watch->copy);
    free(watch->large);
    free(watch->intervals);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *owner_of_core(const Watch *watch) {
    size_t at = 0;
    for (size_t i = 0; i < watch->number; i++) {
        const size_t length = (size_t)watch->core[i].length;
        if (memcmp(watch->copy + at, (const void *)(uintptr_t)watch->core[i].start, length))
            return PyLong_FromUnsignedLongLong(watch->owners[i]);
        at += length;
    }
    return NULL;
}

static PyObject *owner_in(const Watch *watch, uint64_t start, uint64_t end) {
    size_t low = 0, high = watch->num_large; /* the first that begins behind */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (watch->large[middle].start < end) low = middle + 1;
        else high = middle;
    }
    for (size_t i = low; i-- > 0 && watch->large[i].most > start;)
        if (watch->large[i].end > start && is_changed(&watch->large[i], watch->limit, start, end))
            return PyLong_FromUnsignedLongLong(watch->large[i].owner);
    return NULL;
}

#ifdef HAS_PAGES
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any, wanted;
};
struct region {
    uint64_t start, end, categories;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct scan)
enum { WP_MATCHING = 1, CHECK_WPASYNC = 2, IS_WRITTEN = 2, AT_ONCE = 128 };

static int tell_others(const Watch *from, uint64_t start, uint64_t end) {
    for (Watch *each = living; each; each = each->next)
        if (each != from && add_range(&each->news, start, end - start, 0)) return PyErr_NoMemory(), -1;
    return 0;
}

/* Return the owner of what others were told of. */
static PyObject *owner_in_news(Watch *watch) {
    while (watch->news.number) {
        const Range *news = &watch->news.items[watch->news.number - 1];
        PyObject *owner = owner_in(watch, news->start, news->start + news->length);
        if (owner) return owner;
        watch->news.number--;
    }
    return NULL;
}

/* Ask the kernel which pages were written, have them protected again, and tell all but `from`, which is told, too. */
static int scan_pages(int pagemap, Watch *from, uint64_t start, uint64_t end) {
    struct region found[AT_ONCE];
    while (start < end) {
        struct scan scan = {sizeof scan, WP_MATCHING | CHECK_WPASYNC, start, end, 0, (uint64_t)(uintptr_t)found,
                            AT_ONCE, 0, 0, IS_WRITTEN, 0, IS_WRITTEN};
        const int number = ioctl(pagemap, PAGEMAP_SCAN, &scan);
        if (number < 0) return PyErr_SetFromErrno(PyExc_OSError), -1;
        for (int k = 0; k < number; k++) {
            if (tell_others(from, found[k].start, found[k].end)) return -1;
            if (from && add_range(&from->news, found[k].start, found[k].end - found[k].start, 0))
                return PyErr_NoMemory(), -1;
        }
        if (scan.walk_end <= start) break;
        start = scan.walk_end;
    }
    return 0;
}

/* Return the owner of what was written to; NULL for nothing, with an error set where the kernel does not say. */
static PyObject *owner_of_written(Watch *watch) {
    for (size_t i = 0; i < watch->num_intervals; i++) {
        const Range *one = &watch->intervals[i];
        if (scan_pages(watch->pagemap, watch, one->start, one->start + one->length)) return NULL;
    }
    return owner_in_news(watch);
}
#endif

/* look(): the address of an object that is not as it was; None where all are. */
static PyObject *watch_look(PyObject *self, PyObject *Py_UNUSED(none)) {
    Watch *watch = (Watch *)self;
    PyObject *owner = NULL;
#ifdef HAS_PAGES
    if (watch->num_intervals) {
        const long faults = faults_now(); /* before the scan: what is written right after it may share a page with us */
        const int scans = watch->faults < 0 || watch->faults != faults;
        owner = scans ? owner_of_written(watch) : owner_in_news(watch);
        if (owner || PyErr_Occurred()) {
            watch->faults = -1;
            return owner;
        }
        if (scans) watch->faults = faults;
    }
#endif
    owner = owner_of_core(watch); /* last: what the core refers to is there only if what refers to it has not changed */
    if (owner) return owner;
    Py_RETURN_NONE;
}

/* look_at_all(): as look(), by reading everything: what shares an outer page, and whole only what is short. */
static PyObject *watch_look_at_all(PyObject *self, PyObject *Py_UNUSED(none)) {
    Watch *watch = (Watch *)self;
    PyObject *owner = owner_of_core(watch);
    if (owner) return owner;
    for (size_t i = 0; i < watch->num_large; i++) {
        Large now = watch->large[i];
        hash_large(&now, watch->limit);
        if (now.head != watch->large[i].head || now.tail != watch->large[i].tail)
            return PyLong_FromUnsignedLongLong(now.owner);
    }
    Py_RETURN_NONE;
}

static int append_owner(PyObject *list, uint64_t owner) {
    PyObject *number = PyLong_FromUnsignedLongLong(owner);
    const int failed = !number || PyList_Append(list, number);
    Py_XDECREF(number);
    return failed;
}

/* changed(): the addresses of all objects that are not as they were, by reading everything. */
static PyObject *watch_changed(PyObject *self, PyObject *Py_UNUSED(none)) {
    Watch *watch = (Watch *)self;
    PyObject *found = PyList_New(0);
    size_t at = 0;
    for (size_t i = 0; found && i < watch->number; i++) {
        const size_t length = (size_t)watch->core[i].length;
        if (memcmp(watch->copy + at, (const void *)(uintptr_t)watch->core[i].start, length) &&
            append_owner(found, watch->owners[i]))
            Py_CLEAR(found);
        at += length;
    }
    for (size_t i = 0; found && i < watch->num_large; i++) {
        Large now = watch->large[i];
        hash_large(&now, watch->limit);
        if ((now.head != watch->large[i].head || now.tail != watch->large[i].tail) && append_owner(found, now.owner))
            Py_CLEAR(found);
    }
    return found;
}

/* core(core, owners): have another core, as it stands now. */
static PyObject *watch_core(PyObject *self, PyObject *arguments) {
    PyObject *core, *owners;
    if (!PyArg_ParseTuple(arguments, "OO", &core, &owners) || take_core((Watch *)self, core, owners)) return NULL;
    copy_core((Watch *)self);
    Py_RETURN_NONE;
}

static PyObject *watch_renew(PyObject *self, PyObject *Py_UNUSED(none)) {
    renew((Watch *)self);
    Py_RETURN_NONE;
}

static PyMethodDef watch_methods[] = {
    {"look", watch_look, METH_NOARGS, "look(): the address of an object that is not as it was; None where all are."},
    {"look_at_all", watch_look_at_all, METH_NOARGS, "look_at_all(): the same, asking no kernel."},
    {"changed", watch_changed, METH_NOARGS,
     "changed(): the addresses of all objects that are not as they were, by reading everything; asks no kernel."},
    {"core", watch_core, METH_VARARGS, "core(core, owners): have another core, as it stands now."},
    {"renew", watch_renew, METH_NOARGS, "renew(): take everything as it stands now."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot watch_slots[] = {
    {Py_tp_doc, "Watch(core, owners, large, owners, intervals, pagemap): compares memory with what it was."},
    {Py_tp_init, watch_init},
    {Py_tp_dealloc, watch_free},
    {Py_tp_methods, watch_methods},
    {0, NULL},
};

static PyType_Spec watch_spec = {"flatout.watch.memory._memory.Watch", sizeof(Watch), 0, Py_TPFLAGS_DEFAULT,
                                 watch_slots};

/* -- ranges, as bytes of pairs of numbers ------------------------------------------------------------------------ */

static PyObject *bytes_of(const Ranges *ranges) {
    return PyBytes_FromStringAndSize((const char *)ranges->items, (Py_ssize_t)(ranges->number * sizeof(Range)));
}

static PyObject *bytes_of_owners(const Ranges *ranges) {
    return PyBytes_FromStringAndSize((const char *)ranges->owners, (Py_ssize_t)(ranges->number * WORD));
}

static void free_ranges(Ranges *ranges) {
    free(ranges->items);
    free(ranges->owners);
}

/* Take apart pairs and owners into two pieces; `in_one` says which. */
typedef int (*Choice)(const Range *range, uint64_t owner, void *told);

static PyObject *taken_apart(PyObject *pairs, PyObject *owners, Choice in_one, void *told) {
    Range *items = NULL;
    uint64_t *of = NULL;
    Ranges one = {0}, other = {0};
    PyObject *found = NULL;
    int failed = 0;
    const Py_ssize_t number = pairs_of(pairs, &items);
    if (number < 0 || !(of = owners_of(owners, number))) goto done;
    for (Py_ssize_t i = 0; !failed && i < number; i++) {
        const int first = in_one(&items[i], of[i], told);
        failed = first < 0 || add_range(first ? &one : &other, items[i].start, items[i].length, of[i]);
    }
    if (!failed)
        found = Py_BuildValue("(NNNN)", bytes_of(&one), bytes_of_owners(&one), bytes_of(&other), bytes_of_owners(&other));
    else if (!PyErr_Occurred()) PyErr_NoMemory();
done:
    free(items);
    free(of);
    free_ranges(&one);
    free_ranges(&other);
    return found;
}

typedef struct {
    PyObject *always;
    unsigned long long ranges, bytes, longest;
} Little;

static int is_little(const Range *range, uint64_t owner, void *told) {
    Little *left = told;
    int fits = range->length <= left->longest && left->ranges && range->length <= left->bytes;
    if (!fits) {
        PyObject *number = PyLong_FromUnsignedLongLong(owner);
        fits = number ? PySequence_Contains(left->always, number) : -1;
        Py_XDECREF(number);
        return fits;
    }
    left->ranges--;
    left->bytes -= range->length;
    return 1;
}

/* part(pairs, owners, always, ranges, bytes, longest): what is little, up to so many, and the rest. */
static PyObject *py_part(PyObject *Py_UNUSED(self), PyObject *arguments) {
    PyObject *pairs, *owners;
    Little little;
    if (!PyArg_ParseTuple(arguments, "O!O!OKKK", &PyBytes_Type, &pairs, &PyBytes_Type, &owners, &little.always,
                          &little.ranges, &little.bytes, &little.longest))
        return NULL;
    return taken_apart(pairs, owners, is_little, &little);
}

typedef struct {
    const Range *items;
    Py_ssize_t number;
} Spans;

static int begins_within(const Range *range, uint64_t Py_UNUSED(owner), void *told) {
    const Spans *spans = told;
    Py_ssize_t low = 0, high = spans->number; /* the first that begins behind */
    while (low < high) {
        const Py_ssize_t middle = (low + high) / 2;
        if (spans->items[middle].start <= range->start) low = middle + 1;
        else high = middle;
    }
    return low && range->start < spans->items[low - 1].start + spans->items[low - 1].length;
}

/* within(pairs, owners, spans): what begins in one of the spans, which are sorted and apart, and the rest. */
static PyObject *py_within(PyObject *Py_UNUSED(self), PyObject *arguments) {
    PyObject *pairs, *owners, *given, *found = NULL;
    Range *items = NULL;
    if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyBytes_Type, &pairs, &PyBytes_Type, &owners, &PyBytes_Type, &given))
        return NULL;
    const Py_ssize_t number = pairs_of(given, &items);
    if (number >= 0) {
        Spans spans = {items, number};
        found = taken_apart(pairs, owners, begins_within, &spans);
    }
    free(items);
    return found;
}

static int by_place(const void *one, const void *other) {
    const Range *a = one, *b = other;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* cover(pairs, gap): whole pages that cover the ranges, with those between two that are no more than `gap` bytes apart. */
static PyObject *py_cover(PyObject *Py_UNUSED(self), PyObject *arguments) {
    PyObject *pairs, *found = NULL;
    unsigned long long gap;
    Range *items = NULL;
    Ranges pages = {0};
    if (!PyArg_ParseTuple(arguments, "O!K", &PyBytes_Type, &pairs, &gap)) return NULL;
    const Py_ssize_t number = pairs_of(pairs, &items);
    int failed = number < 0;
    if (number > 0) qsort(items, (size_t)number, sizeof *items, by_place);
    for (Py_ssize_t i = 0; !failed && i < number; i++) {
        const uint64_t start = items[i].start & ~(uint64_t)(PAGE - 1), end = first_page(items[i].start + items[i].length);
        Range *last = pages.number ? &pages.items[pages.number - 1] : NULL;
        if (!last || start > last->start + last->length + gap) failed = add_range(&pages, start, end - start, 0);
        else if (end > last->start + last->length) last->length = end - last->start;
    }
    if (!failed) found = bytes_of(&pages);
    else if (!PyErr_Occurred()) PyErr_NoMemory();
    free(items);
    free_ranges(&pages);
    return found;
}

/* -- the module ------------------------------------------------------------------------------------------------- */

static PyObject *py_hash_of(PyObject *Py_UNUSED(self), PyObject *arguments) {
    unsigned long long start, length;
    if (!PyArg_ParseTuple(arguments, "KK", &start, &length)) return NULL;
    return PyLong_FromUnsignedLongLong(hash_of(start, length));
}

/* publish(pagemap, start, length): tell all who watch of pages that were written; others protect them anew next. */
static PyObject *py_publish(PyObject *Py_UNUSED(self), PyObject *arguments) {
    unsigned long long start, length;
    int pagemap;
    if (!PyArg_ParseTuple(arguments, "iKK", &pagemap, &start, &length)) return NULL;
#ifdef HAS_PAGES
    const uint64_t end = start + length;
    for (const Watch *each = living; each; each = each->next)
        for (size_t i = 0; i < each->num_intervals; i++) {
            const Range *one = &each->intervals[i];
            const uint64_t from = one->start > start ? one->start : start;
            const uint64_t until = one->start + one->length < end ? one->start + one->length : end;
            if (from < until && scan_pages(pagemap, NULL, from, until)) PyErr_Clear(); /* gone: its own look will say */
        }
#endif
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"publish", py_publish, METH_VARARGS, "publish(pagemap, start, length): tell all who watch what was written there."},
    {"part", py_part, METH_VARARGS,
     "part(pairs, owners, always, ranges, bytes, longest): what is little, up to so many, and the rest."},
    {"within", py_within, METH_VARARGS, "within(pairs, owners, spans): what begins in one of the spans, and the rest."},
    {"cover", py_cover, METH_VARARGS, "cover(pairs, gap): whole pages that cover the ranges, and gaps of so many bytes."},
    {"hash_of", py_hash_of, METH_VARARGS, "hash_of(start, length): a number for what stands there."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_memory", "What objects consist of in memory; see memory.c.", -1,
                             methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__memory(void) {
    PyObject *made = PyModule_Create(&module), *tracer, *watch;
    if (!made) return NULL;
    tracer = PyType_FromSpec(&tracer_spec);
    watch = PyType_FromSpec(&watch_spec);
    if (!tracer || !watch || PyModule_AddObjectRef(made, "Tracer", tracer) || PyModule_AddObjectRef(made, "Watch", watch))
        return NULL;
    Py_DECREF(tracer);
    Py_DECREF(watch);
    return made;
}
