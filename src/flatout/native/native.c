/* Operations on images of bytes, as Pillow does them to the last bit, many images a call, beside the interpreter.
 *
 * Pillow is the definition: how it weighs, rounds and clips is written down in its documentation and visible in what it
 * gives; the tests compare every function with it. Python hands over addresses; native.py checks what lies there, and
 * `operate` that rows are within it.
 * Products and sums in floating point are not fused (-ffp-contract=off), as in Pillow's builds for x86-64; a Pillow that
 * does it otherwise is noticed in each process before it is used.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#define HAS_THREADS
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define HAS_AVX2
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw")))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))
static int has_avx2, has_avx512, has_vbmi; /* of this processor, as far as they are used */
#define INLINE __attribute__((always_inline)) inline
#else
#define INLINE inline
#endif

#define BITS 22 /* of a weight's fraction */

/* -------------------------------------------------------------------------------------------------------- channels */

#ifdef HAS_AVX2
/* Where in 192 bytes the 64 of each of three channels are: in the first 128, or beyond. */
static uint8_t of_channel[3][64];
static uint64_t beyond[3];

static void find_channels(void) {
    int channel, at;
    for (channel = 0; channel < 3; channel++)
        for (at = 0; at < 64; at++) {
            of_channel[channel][at] = (uint8_t)((3 * at + channel) % 128);
            beyond[channel] |= (uint64_t)(3 * at + channel >= 128) << at;
        }
}

/* At least 64 pixels; the last ones perhaps twice. */
VBMI static void part_vbmi(const uint8_t *in, size_t pixels, uint8_t *out, size_t apart) {
    __m512i places[3];
    size_t place;
    int channel;
    for (channel = 0; channel < 3; channel++) places[channel] = _mm512_loadu_si512(of_channel[channel]);
    for (place = 0; place < pixels; place += 64) {
        const size_t at = place + 64 <= pixels ? place : pixels - 64;
        const uint8_t *from = in + 3 * at;
        const __m512i one = _mm512_loadu_si512(from), two = _mm512_loadu_si512(from + 64);
        const __m512i three = _mm512_loadu_si512(from + 128);
        for (channel = 0; channel < 3; channel++)
            _mm512_storeu_si512(out + channel * apart + at,
                                _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(one, places[channel], two),
                                                             (__mmask64)beyond[channel], places[channel], three));
    }
}
#endif

FOR_EACH_PROCESSOR
static void part_plainly(const uint8_t *in, size_t pixels, uint8_t *red, uint8_t *green, uint8_t *blue) {
    size_t place;
    for (place = 0; place < pixels; place++) {
        red[place] = in[3 * place];
        green[place] = in[3 * place + 1];
        blue[place] = in[3 * place + 2];
    }
}

/* Colored pixels whose channels lie `apart` afterwards, one after the other. */
static void part(const uint8_t *in, size_t pixels, uint8_t *out, size_t apart) {
#ifdef HAS_AVX2
    if (has_vbmi && pixels >= 64) {
        part_vbmi(in, pixels, out, apart);
        return;
    }
#endif
    part_plainly(in, pixels, out, out + apart, out + 2 * apart);
}

/* ------------------------------------------------------------------------------------------------------ resampling */

typedef struct {
    int *first, *count;
    int32_t *weights; /* `widest` for each pixel of the result */
    int16_t *shares;  /* see share_of; -1 where there is none */
    int widest;
} Line;

static double bilinear(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static void free_line(Line *line) {
    free(line->first);
    free(line->weights);
    free(line->shares);
    line->first = line->count = NULL;
    line->weights = NULL;
    line->shares = NULL;
}

/* How often, of all pairs of bytes, one + (other - one) * share, rounded, is not what their weights give. What is added
 * to `one` grows or falls steadily with it while the two stay as far apart: its least and its greatest tell. */
FOR_EACH_PROCESSOR
static int num_wrong(int32_t first, int32_t second, int32_t share) {
    int apart, wrong = 0;
    for (apart = -255; apart <= 255; apart++) {
        const int32_t least = apart < 0 ? -apart : 0, greatest = apart < 0 ? 255 : 255 - apart;
        const int32_t added = (apart * share + (1 << 14)) >> 15;
        const int32_t one = (least * first + (least + apart) * second + (1 << (BITS - 1))) >> BITS;
        const int32_t other = (greatest * first + (greatest + apart) * second + (1 << (BITS - 1))) >> BITS;
        wrong += (least + added != (one > 255 ? 255 : one)) + (greatest + added != (other > 255 ? 255 : other));
    }
    return wrong;
}

/* What part of 32768 of the way from one byte to the next gives what two weights give, for all bytes; -1 if none does. */
static int16_t share_of(int32_t first, int32_t second) {
    static const int beside[] = {0, -1, 1};
    const int32_t nearest = (second + (1 << (BITS - 16))) >> (BITS - 15);
    int at;
    for (at = 0; at < 3; at++) {
        const int32_t share = nearest + beside[at];
        if (first >= 0 && share >= 0 && share < 1 << 15 && !num_wrong(first, second, share)) return (int16_t)share;
    }
    return -1;
}

#define MOST_PAIRS 32   /* of weights: those of an image enlarged by a simple ratio come again and again */
#define WORTH_BYTES 4096 /* that come of a pair, at least: fewer save less than finding its share takes, by the number of instructions */

/* The shares of a line of which each pixel comes from two, or from one; none where there would be many to find for the
 * rows of `bytes` that they are for. */
static void find_shares(Line *line, int after, size_t bytes) {
    int32_t firsts[MOST_PAIRS], seconds[MOST_PAIRS];
    int16_t found[MOST_PAIRS];
    int place, pair, number = 0;
    for (place = 0; place < after; place++) {
        const int32_t *weights = line->weights + (size_t)place * line->widest;
        const int32_t second = line->count[place] > 1 ? weights[1] : 0;
        for (pair = 0; pair < number && (firsts[pair] != weights[0] || seconds[pair] != second);) pair++;
        if (line->count[place] > 2 || pair == MOST_PAIRS) break;
        if (pair == number) firsts[number] = weights[0], seconds[number++] = second;
        line->shares[place] = (int16_t)pair;
    }
    if (place < after || after * bytes < (size_t)number * WORTH_BYTES) {
        for (place = 0; place < after; place++) line->shares[place] = -1;
        return;
    }
    for (pair = 0; pair < number; pair++) found[pair] = share_of(firsts[pair], seconds[pair]);
    for (place = 0; place < after; place++) line->shares[place] = found[line->shares[place]];
}

/* Which pixels of a line of `before` each of `after` comes from, and with which weights; their shares for rows of `bytes`,
 * of none where that is 0. The result is 0, or -1 without memory. */
static int make_line(Line *line, int before, int after, int cubic, size_t bytes) {
    double scale = (double)before / after, wide = scale < 1.0 ? 1.0 : scale;
    double support = (cubic ? 2.0 : 1.0) * wide;
    double *values;
    int place, pixel;
    line->widest = (int)ceil(support) * 2 + 1;
    line->first = malloc(sizeof(int) * 2 * (size_t)after);
    line->weights = calloc((size_t)after * line->widest, sizeof(int32_t));
    line->shares = malloc(sizeof(int16_t) * (size_t)after);
    values = malloc(sizeof(double) * line->widest);
    if (!line->first || !line->weights || !line->shares || !values) {
        free(values);
        free_line(line);
        return -1;
    }
    line->count = line->first + after;
    for (place = 0; place < after; place++) {
        double center = (place + 0.5) * scale, sum = 0.0, inverse = 1.0 / wide;
        int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
        int32_t *weights = line->weights + (size_t)place * line->widest;
        first = first < 0 ? 0 : first;
        last = last > before ? before : last;
        for (pixel = 0; pixel < last - first; pixel++) {
            double x = (pixel + first - center + 0.5) * inverse;
            values[pixel] = cubic ? bicubic(x) : bilinear(x);
            sum += values[pixel];
        }
        for (pixel = 0; pixel < last - first; pixel++) {
            double value = (sum != 0.0 ? values[pixel] / sum : values[pixel]) * (1 << BITS);
            weights[pixel] = (int32_t)(value < 0 ? value - 0.5 : value + 0.5);
        }
        line->first[place] = first;
        line->count[place] = last - first;
    }
    free(values);
    find_shares(line, after, bytes);
    return 0;
}

/* Sixteen numbers are weighed at once: four colored pixels, one of each of four rows, or one gray one of sixteen. */
#define LANES 16

/* LANES sums of `count` numbers times their weight, `step` bytes apart, as bytes. */
static INLINE void weigh(const uint8_t *in, size_t step, const int32_t *weights, int count, uint8_t *out) {
    int32_t sums[LANES];
    int tap, lane;
    for (lane = 0; lane < LANES; lane++) sums[lane] = 1 << (BITS - 1);
    for (tap = 0; tap < count; tap++)
        for (lane = 0; lane < LANES; lane++) sums[lane] += in[tap * step + lane] * weights[tap];
    for (lane = 0; lane < LANES; lane++) {
        int32_t sum = sums[lane] >> BITS;
        sum = sum < 0 ? 0 : sum;
        out[lane] = (uint8_t)(sum > 255 ? 255 : sum);
    }
}

#ifdef HAS_AVX2
AVX2 static INLINE void weigh_avx2(const uint8_t *in, size_t step, const int32_t *weights, int count, uint8_t *out) {
    __m256i low = _mm256_set1_epi32(1 << (BITS - 1)), high = low, words;
    int tap;
    for (tap = 0; tap < count; tap++) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(in + tap * step));
        const __m256i weight = _mm256_set1_epi32(weights[tap]);
        low = _mm256_add_epi32(low, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), weight));
        high = _mm256_add_epi32(high, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)), weight));
    }
    words = _mm256_packs_epi32(_mm256_srai_epi32(low, BITS), _mm256_srai_epi32(high, BITS));
    words = _mm256_permute4x64_epi64(words, 0xD8);
    _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

AVX512 static INLINE void weigh_avx512(const uint8_t *in, size_t step, const int32_t *weights, int count,
                                       uint8_t *out) {
    __m512i sums = _mm512_set1_epi32(1 << (BITS - 1));
    int tap;
    for (tap = 0; tap < count; tap++) {
        const __m512i numbers = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(in + tap * step)));
        sums = _mm512_add_epi32(sums, _mm512_mullo_epi32(numbers, _mm512_set1_epi32(weights[tap])));
    }
    sums = _mm512_max_epi32(_mm512_srai_epi32(sums, BITS), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)out, _mm512_cvtusepi32_epi8(sums));
}
#endif

#ifdef HAS_AVX2
static INLINE int32_t four_bytes(const uint8_t *in) {
    int32_t bytes;
    memcpy(&bytes, in, sizeof bytes);
    return bytes;
}

/* The pixels of four colored rows but the last, side by side; one byte too many is read, and never looked at. */
AVX2 static void stack_fours(const uint8_t *in, size_t row_bytes, int width, uint8_t *stacked) {
    const uint8_t *second = in + row_bytes, *third = second + row_bytes, *fourth = third + row_bytes;
    int pixel;
    for (pixel = 0; pixel < width - 1; pixel++) {
        const size_t at = 3 * (size_t)pixel;
        __m128i bytes = _mm_cvtsi32_si128(four_bytes(in + at));
        bytes = _mm_insert_epi32(bytes, four_bytes(second + at), 1);
        bytes = _mm_insert_epi32(bytes, four_bytes(third + at), 2);
        bytes = _mm_insert_epi32(bytes, four_bytes(fourth + at), 3);
        _mm_storeu_si128((__m128i *)(stacked + (size_t)pixel * LANES), bytes);
    }
}
#endif

/* Rows side by side, pixel by pixel: `rows` of them, as many as there is room for in LANES. */
static void stack_rows(const uint8_t *in, size_t row_bytes, int width, int channels, int rows, uint8_t *stacked) {
    int row, pixel, first = 0;
#ifdef HAS_AVX2
    if (has_avx2 && channels == 3 && rows == 4) {
        stack_fours(in, row_bytes, width, stacked);
        first = width - 1;
    }
#endif
    for (row = 0; row < rows; row++) {
        const uint8_t *from = in + row * row_bytes;
        if (channels == 1) {
            for (pixel = 0; pixel < width; pixel++) stacked[(size_t)pixel * LANES + row] = from[pixel];
            continue;
        }
        for (pixel = first; pixel < width - 1; pixel++) /* one byte too many is read, and never looked at */
            memcpy(stacked + (size_t)pixel * LANES + 4 * row, from + 3 * (size_t)pixel, 4);
        memcpy(stacked + (size_t)pixel * LANES + 4 * row, from + 3 * (size_t)pixel, 3);
    }
}

/* widen: stacked rows made `after` pixels long; of each, one byte beyond its end is written.
 * mix_rows: one row of the result from `count` rows that follow one another. */
#define WEIGHED(NAME_WIDEN, NAME_MIX, TARGET, WEIGH)                                                                   \
    TARGET static void NAME_WIDEN(const uint8_t *stacked, const Line *line, int after, int channels, int rows,         \
                                  uint8_t *out, size_t out_bytes) {                                                    \
        int place, row;                                                                                                \
        for (place = 0; place < after; place++) {                                                                      \
            uint8_t bytes[LANES];                                                                                      \
            WEIGH(stacked + (size_t)line->first[place] * LANES, LANES, line->weights + (size_t)place * line->widest,   \
                  line->count[place], bytes);                                                                          \
            if (channels == 3 && rows == 4) {                                                                          \
                memcpy(out + 3 * (size_t)place, bytes, 4);                                                             \
                memcpy(out + out_bytes + 3 * (size_t)place, bytes + 4, 4);                                             \
                memcpy(out + 2 * out_bytes + 3 * (size_t)place, bytes + 8, 4);                                         \
                memcpy(out + 3 * out_bytes + 3 * (size_t)place, bytes + 12, 4);                                        \
            } else if (channels == 1)                                                                                  \
                for (row = 0; row < rows; row++) out[row * out_bytes + place] = bytes[row];                            \
            else                                                                                                       \
                for (row = 0; row < rows; row++) memcpy(out + row * out_bytes + 3 * (size_t)place, bytes + 4 * row, 4); \
        }                                                                                                              \
    }                                                                                                                  \
    TARGET static void NAME_MIX(const uint8_t *in, size_t row_bytes, size_t wanted, const int32_t *weights, int count, \
                                uint8_t *out) {                                                                        \
        size_t place = 0;                                                                                              \
        for (; place + LANES <= wanted; place += LANES) WEIGH(in + place, row_bytes, weights, count, out + place);     \
        for (; place < wanted; place++) {                                                                              \
            int32_t sum = 1 << (BITS - 1);                                                                             \
            int tap;                                                                                                   \
            for (tap = 0; tap < count; tap++) sum += in[tap * row_bytes + place] * weights[tap];                       \
            sum >>= BITS;                                                                                              \
            out[place] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);                                               \
        }                                                                                                              \
    }

WEIGHED(widen_plainly, mix_plainly, , weigh)
#ifdef HAS_AVX2
WEIGHED(widen_avx2, mix_avx2, AVX2, weigh_avx2)
WEIGHED(widen_avx512, mix_avx512, AVX512, weigh_avx512)
#define widen(...) (has_avx512 ? widen_avx512 : has_avx2 ? widen_avx2 : widen_plainly)(__VA_ARGS__)
#define mix_rows(...) (has_avx512 ? mix_avx512 : has_avx2 ? mix_avx2 : mix_plainly)(__VA_ARGS__)
#else
#define widen widen_plainly
#define mix_rows mix_plainly
#endif

/* Rows `top` to `bottom` made wider or narrower, each with room for four bytes at its end. */
static void across_rows(const uint8_t *in, size_t row_bytes, int width, int channels, const Line *line, int wide,
                        int top, int bottom, uint8_t *stacked, uint8_t *out, size_t out_bytes) {
    const int most = channels == 1 ? LANES : LANES / 4;
    int row;
    for (row = top; row < bottom; row += most) {
        const int rows = bottom - row < most ? bottom - row : most;
        stack_rows(in + row * row_bytes, row_bytes, width, channels, rows, stacked);
        widen(stacked, line, wide, channels, rows, out + (row - top) * out_bytes, out_bytes);
    }
}

#ifdef HAS_AVX2
/* Some rows of the result that all lie between the same two, by their shares of the way; the last bytes perhaps twice. */
AVX2 static void between_avx2(const uint8_t *in, const uint8_t *next, size_t wanted, const int16_t *shares, int rows,
                              uint8_t *out, size_t out_bytes) {
    const __m256i zero = _mm256_setzero_si256();
    size_t place;
    int row;
    for (place = 0; place < wanted; place += 32) {
        const size_t at = place + 32 <= wanted ? place : wanted - 32;
        const __m256i one = _mm256_loadu_si256((const __m256i *)(in + at));
        const __m256i other = _mm256_loadu_si256((const __m256i *)(next + at));
        const __m256i low = _mm256_unpacklo_epi8(one, zero), high = _mm256_unpackhi_epi8(one, zero);
        const __m256i more_low = _mm256_sub_epi16(_mm256_unpacklo_epi8(other, zero), low);
        const __m256i more_high = _mm256_sub_epi16(_mm256_unpackhi_epi8(other, zero), high);
        for (row = 0; row < rows; row++) {
            const __m256i share = _mm256_set1_epi16(shares[row]);
            const __m256i new_low = _mm256_add_epi16(low, _mm256_mulhrs_epi16(more_low, share));
            const __m256i new_high = _mm256_add_epi16(high, _mm256_mulhrs_epi16(more_high, share));
            _mm256_storeu_si256((__m256i *)(out + row * out_bytes + at), _mm256_packus_epi16(new_low, new_high));
        }
    }
}

AVX512 static void between_avx512(const uint8_t *in, const uint8_t *next, size_t wanted, const int16_t *shares, int rows,
                                  uint8_t *out, size_t out_bytes) {
    const __m512i zero = _mm512_setzero_si512();
    size_t place;
    int row;
    for (place = 0; place < wanted; place += 64) {
        const size_t at = place + 64 <= wanted ? place : wanted - 64;
        const __m512i one = _mm512_loadu_si512(in + at), other = _mm512_loadu_si512(next + at);
        const __m512i low = _mm512_unpacklo_epi8(one, zero), high = _mm512_unpackhi_epi8(one, zero);
        const __m512i more_low = _mm512_sub_epi16(_mm512_unpacklo_epi8(other, zero), low);
        const __m512i more_high = _mm512_sub_epi16(_mm512_unpackhi_epi8(other, zero), high);
        for (row = 0; row < rows; row++) {
            const __m512i share = _mm512_set1_epi16(shares[row]);
            const __m512i new_low = _mm512_add_epi16(low, _mm512_mulhrs_epi16(more_low, share));
            const __m512i new_high = _mm512_add_epi16(high, _mm512_mulhrs_epi16(more_high, share));
            _mm512_storeu_si512(out + row * out_bytes + at, _mm512_packus_epi16(new_low, new_high));
        }
    }
}
#endif

/* As many rows as lie between the same two as this one, which has a share; 0 where this processor or the image is not
 * made for it. */
static int rows_between(const uint8_t *in, size_t row_bytes, size_t wanted, const Line *line, int row, int tall,
                        uint8_t *out, size_t out_bytes) {
    int rows = 0;
#ifdef HAS_AVX2
    const uint8_t *next = line->count[row] > 1 ? in + row_bytes : in;
    if (line->shares[row] < 0 || !has_avx2 || wanted < (has_avx512 ? 64 : 32)) return 0;
    while (row + rows < tall && line->shares[row + rows] >= 0 && line->first[row + rows] == line->first[row] &&
           line->count[row + rows] == line->count[row])
        rows++;
    (has_avx512 ? between_avx512 : between_avx2)(in, next, wanted, line->shares + row, rows, out, out_bytes);
#else
    (void)in, (void)row_bytes, (void)wanted, (void)line, (void)row, (void)tall, (void)out, (void)out_bytes;
#endif
    return rows;
}

static void down_rows(const uint8_t *in, size_t row_bytes, size_t bytes_wanted, const Line *line, int tall, int top,
                      uint8_t *out, size_t out_bytes) {
    int row, rows;
    for (row = 0; row < tall; row += rows) {
        const uint8_t *from = in + (size_t)(line->first[row] - top) * row_bytes;
        rows = rows_between(from, row_bytes, bytes_wanted, line, row, tall, out + row * out_bytes, out_bytes);
        if (rows) continue;
        rows = 1;
        mix_rows(from, row_bytes, bytes_wanted, line->weights + (size_t)row * line->widest, line->count[row],
                 out + row * out_bytes);
    }
}

/* Memory that grows, and is used for one image after the other. */
typedef struct {
    uint8_t *bytes;
    size_t room;
} Memory;

static uint8_t *memory(Memory *memory, size_t wanted) {
    if (memory->room < wanted) {
        free(memory->bytes);
        memory->bytes = malloc(wanted);
        memory->room = memory->bytes ? wanted : 0;
    }
    return memory->bytes;
}

typedef struct {
    Line across, down;
    int height, width, tall, wide, cubic; /* what the lines are for */
    Memory lines, stacked, rows;
} Resampling;

static void end_resampling(Resampling *room) {
    free_line(&room->across);
    free_line(&room->down);
    free(room->lines.bytes);
    free(room->stacked.bytes);
    free(room->rows.bytes);
}

static int make_lines(Resampling *room, int height, int width, int tall, int wide, int cubic, size_t bytes) {
    if (room->across.weights && room->down.weights && room->height == height && room->width == width && room->tall == tall &&
        room->wide == wide && room->cubic == cubic)
        return 0;
    free_line(&room->across);
    free_line(&room->down);
    room->height = height, room->width = width, room->tall = tall, room->wide = wide, room->cubic = cubic;
    return make_line(&room->across, width, wide, cubic, 0) || make_line(&room->down, height, tall, cubic, bytes) ? -1 : 0;
}

/* A colored window made taller, lying lines first, whose channels lie one after the other afterwards: parted are the lines
 * before there are more of them. 0, or -1 without memory. */
static int resample_parted(const uint8_t *in, size_t row_bytes, int width, int tall, int wide, Resampling *room,
                           uint8_t *out) {
    const Line *down = &room->down;
    const int top = down->first[0], number = down->first[tall - 1] + down->count[tall - 1] - top;
    const size_t with_room = 3 * (size_t)wide + 4, plane = (size_t)number * wide;
    uint8_t *lines = memory(&room->lines, number * with_room);
    uint8_t *stacked = memory(&room->stacked, (size_t)width * LANES);
    uint8_t *planes = memory(&room->rows, 3 * plane);
    int row, channel;
    if (!lines || !stacked || !planes) return -1;
    across_rows(in, row_bytes, width, 3, &room->across, wide, top, top + number, stacked, lines, with_room);
    for (row = 0; row < number; row++) part(lines + row * with_room, wide, planes + (size_t)row * wide, plane);
    for (channel = 0; channel < 3; channel++)
        down_rows(planes + channel * plane, wide, wide, down, tall, top, out + (size_t)channel * tall * wide, wide);
    return 0;
}

/* A window resized: lying lines first, or standing ones. 0, or -1 without memory. */
static int resample(const uint8_t *in, size_t row_bytes, int width, int channels, int tall, int wide, int down_first,
                    Resampling *room, uint8_t *out) {
    const Line *across = &room->across, *down = &room->down;
    const int top = down_first ? 0 : down->first[0];
    const int bottom = down_first ? tall : down->first[tall - 1] + down->count[tall - 1];
    const size_t wanted = (size_t)wide * channels, with_room = wanted + 4, given = (size_t)width * channels;
    uint8_t *lines = memory(&room->lines, (bottom - top) * (down_first ? given : with_room) + 4);
    uint8_t *stacked = memory(&room->stacked, (size_t)width * LANES);
    uint8_t *rows = down_first ? memory(&room->rows, tall * with_room) : lines;
    int row;
    if (!lines || !stacked || !rows) return -1;
    if (!down_first) {
        across_rows(in, row_bytes, width, channels, across, wide, top, bottom, stacked, lines, with_room);
        down_rows(lines, with_room, wanted, down, tall, top, out, wanted);
    } else {
        down_rows(in, row_bytes, given, down, tall, 0, lines, given);
        across_rows(lines, given, width, channels, across, wide, 0, tall, stacked, rows, with_room);
        for (row = 0; row < tall; row++) memcpy(out + row * wanted, rows + row * with_room, wanted);
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------- windows and mirrors */

#ifdef HAS_AVX2
/* Colored pixels from the right, five a time, while six are left; returns how many that were. */
AVX2 static size_t mirrored_fives(const uint8_t *in, size_t pixels, uint8_t *out) {
    const __m128i order = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
    size_t place;
    for (place = 0; place + 6 <= pixels; place += 5) { /* of sixteen bytes, the next pixel overwrites the last */
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(in + (pixels - place) * 3 - 16));
        _mm_storeu_si128((__m128i *)(out + place * 3), _mm_shuffle_epi8(bytes, order));
    }
    return place;
}
#endif

static void mirrored(const uint8_t *in, size_t pixels, int channels, uint8_t *out) {
    size_t place = 0;
    int channel;
#ifdef HAS_AVX2
    if (channels == 3 && has_avx2) place = mirrored_fives(in, pixels, out);
#endif
    for (; place < pixels; place++)
        for (channel = 0; channel < channels; channel++)
            out[place * channels + channel] = in[(pixels - 1 - place) * channels + channel];
}

/* A window, filled where it lies beyond the image, then turned round where asked. */
static void cut(const uint8_t *in, int height, int width, int channels, const int32_t *place, int tall, int wide,
                const uint8_t *fill, uint8_t *out) {
    const int top = place[0], left = place[1], mirror = place[2], upside = place[3];
    const int begin = left < 0 ? (-left < wide ? -left : wide) : 0;
    const int end = width - left < begin ? begin : width - left < wide ? width - left : wide;
    int row, pixel;
    for (row = 0; row < tall; row++) {
        uint8_t *into = out + (size_t)(upside ? tall - 1 - row : row) * wide * channels;
        const int from_row = top + row, inside = from_row >= 0 && from_row < height;
        const int first = inside ? begin : wide, last = inside ? end : wide;
        const uint8_t *from = in + ((ptrdiff_t)(inside ? from_row : 0) * width + left) * channels;
        for (pixel = 0; pixel < first; pixel++)
            memcpy(into + (mirror ? wide - 1 - pixel : pixel) * channels, fill, channels);
        for (pixel = last; pixel < wide; pixel++)
            memcpy(into + (mirror ? wide - 1 - pixel : pixel) * channels, fill, channels);
        if (mirror)
            mirrored(from + (ptrdiff_t)first * channels, last - first, channels, into + (wide - last) * channels);
        else
            memcpy(into + first * channels, from + (ptrdiff_t)first * channels, (size_t)(last - first) * channels);
    }
}

/* -------------------------------------------------------------------------------------------- tables of 256 bytes */

#ifdef HAS_AVX2
/* AVX-512 looks at 128 bytes of a table at once. */
VBMI static INLINE __m512i of_256(const __m512i *bytes, __m512i places, __mmask64 upper) {
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(bytes[0], places, bytes[1]),
                                  _mm512_permutex2var_epi8(bytes[2], places, bytes[3]));
}

VBMI static void replace_vbmi(uint8_t *bytes, size_t number, const uint8_t *table) {
    __m512i parts[4];
    size_t place;
    int part;
    for (part = 0; part < 4; part++) parts[part] = _mm512_loadu_si512(table + 64 * part);
    for (place = 0; place + 64 <= number; place += 64) {
        const __m512i places = _mm512_loadu_si512(bytes + place);
        _mm512_storeu_si512(bytes + place, of_256(parts, places, _mm512_movepi8_mask(places)));
    }
    for (; place < number; place++) bytes[place] = table[bytes[place]];
}
#endif

/* ----------------------------------------------------------------------------------------------------------- colors */

/* Pillow's blend with one number, and with a line of them. */
FOR_EACH_PROCESSOR
static void blend_with(uint8_t *bytes, size_t number, float other, float strength) {
    size_t place;
    for (place = 0; place < number; place++) {
        float value = other + strength * ((float)bytes[place] - other);
        value = value < 0.0f ? 0.0f : value;
        value = value > 255.0f ? 255.0f : value;
        bytes[place] = (uint8_t)(int32_t)value;
    }
}

/* The same; where a table is quick, each byte's blend is made once. */
static void blend_all(uint8_t *bytes, size_t number, float other, float strength) {
#ifdef HAS_AVX2
    if (has_vbmi && number > 1024) {
        uint8_t table[256];
        int value;
        for (value = 0; value < 256; value++) table[value] = (uint8_t)value;
        blend_with(table, 256, other, strength);
        replace_vbmi(bytes, number, table);
        return;
    }
#endif
    blend_with(bytes, number, other, strength);
}

FOR_EACH_PROCESSOR
static void blend(uint8_t *bytes, const uint8_t *others, size_t number, float strength) {
    size_t place;
    for (place = 0; place < number; place++) {
        float other = others[place], value = other + strength * ((float)bytes[place] - other);
        value = value < 0.0f ? 0.0f : value;
        value = value > 255.0f ? 255.0f : value;
        bytes[place] = (uint8_t)(int32_t)value;
    }
}

FOR_EACH_PROCESSOR
static void gray_of_planes(const uint8_t *red, const uint8_t *green, const uint8_t *blue, size_t pixels, uint8_t *out) {
    size_t place;
    for (place = 0; place < pixels; place++)
        out[place] = (uint8_t)((red[place] * 19595u + green[place] * 38470u + blue[place] * 7471u + 32768u) >> 16);
}

FOR_EACH_PROCESSOR
static uint64_t sum_of(const uint8_t *bytes, size_t number) {
    uint64_t sum = 0;
    size_t place = 0;
    while (place < number) {
        size_t end = number - place < 65536 ? number : place + 65536;
        uint32_t some = 0;
        for (; place < end; place++) some += bytes[place];
        sum += some;
    }
    return sum;
}

/* Words of eight bytes, which wrap round. */
FOR_EACH_PROCESSOR
static uint64_t sum_of_words(const uint8_t *bytes, size_t number) {
    uint64_t sums[4] = {0}, words[4];
    size_t place = 0, one;
    for (; place + sizeof words <= number; place += sizeof words) {
        memcpy(words, bytes + place, sizeof words);
        for (one = 0; one < 4; one++) sums[one] += words[one];
    }
    for (; place + sizeof words[0] <= number; place += sizeof words[0]) {
        memcpy(words, bytes + place, sizeof words[0]);
        sums[0] += words[0];
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

/* Colors turned round the circle of hues, of which a byte has 255 steps: into hue, saturation and value, each a byte, and
 * back. Pillow's numbers are floats of 32 bits, its constants and what they meet of 64. */
FOR_EACH_PROCESSOR
static void turn_hues(uint8_t *reds, uint8_t *greens, uint8_t *blues, size_t pixels, uint8_t steps) {
    size_t place;
    for (place = 0; place < pixels; place++) {
        const int red = reds[place], green = greens[place], blue = blues[place];
        const int most = red > green ? (red > blue ? red : blue) : (green > blue ? green : blue);
        const int least = red < green ? (red < blue ? red : blue) : (green < blue ? green : blue);
        const float range = most > least ? (float)(most - least) : 1.0f, value = (float)most;
        const float from_red = (float)(most - red) / range, from_green = (float)(most - green) / range;
        const float from_blue = (float)(most - blue) / range, strong = range / (most ? value : 1.0f);
        const float sixth = red == most     ? from_blue - from_green
                            : green == most ? (float)(2.0 + from_red - from_blue)
                                            : (float)(4.0 + from_green - from_red);
        const double turned = sixth / 6.0 + 1.0;
        const float hue = (float)(turned >= 1.0 ? turned - 1.0 : turned);
        const int saturation = most > least ? (int)(strong * 255.0) : 0;
        const int angle = ((most > least ? (int)(hue * 255.0) : 0) + steps) & 255;
        const int sector = (int)(angle * 6.0 / 255.0);
        const float rest = (float)(angle * 6.0 / 255.0 - sector), share = (float)(saturation / 255.0);
        const int low = (int)(value * (1.0 - share) + 0.5);
        const int falling = (int)(value * (1.0 - share * rest) + 0.5);
        const int rising = (int)(value * (1.0 - share * (1.0 - rest)) + 0.5);
        const int of = sector == 6 ? 0 : sector;
        const int new_red = of == 0 || of == 5 ? most : of == 1 ? falling : of == 4 ? rising : low;
        const int new_green = of == 1 || of == 2 ? most : of == 3 ? falling : of == 0 ? rising : low;
        const int new_blue = of == 3 || of == 4 ? most : of == 5 ? falling : of == 2 ? rising : low;
        reds[place] = (uint8_t)(saturation ? new_red : most);
        greens[place] = (uint8_t)(saturation ? new_green : most);
        blues[place] = (uint8_t)(saturation ? new_blue : most);
    }
}

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE };

static void change(uint8_t *planes, size_t pixels, int channels, int what, float strength, uint8_t *gray) {
    const uint8_t *seen = planes;
    int channel;
    if (what == HUE) { /* the strength is a number of steps */
        if (channels == 3) turn_hues(planes, planes + pixels, planes + 2 * pixels, pixels, (uint8_t)(int)strength);
        return;
    }
    if (what == BRIGHTNESS) {
        blend_all(planes, pixels * channels, 0.0f, strength);
        return;
    }
    if (channels == 3) {
        gray_of_planes(planes, planes + pixels, planes + 2 * pixels, pixels, gray);
        seen = gray;
    }
    if (what == CONTRAST)
        blend_all(planes, pixels * channels, (float)(int)((double)sum_of(seen, pixels) / pixels + 0.5), strength);
    else if (channels == 3)
        for (channel = 0; channel < 3; channel++) blend(planes + channel * pixels, gray, pixels, strength);
}

/* An image changed in its color; the channels lie one after the other afterwards, and before, too, where `lead`.
 * `order`: four numbers of a change; `strengths`: one for each change, below zero for one that is not made. */
static void jitter(const uint8_t *in, size_t pixels, int channels, int lead, const int32_t *order,
                   const float *strengths, uint8_t *gray, uint8_t *out) {
    int turn;
    if (channels == 3 && !lead)
        part(in, pixels, out, pixels);
    else
        memcpy(out, in, pixels * channels);
    for (turn = 0; turn < 4; turn++)
        if (strengths[order[turn]] >= 0)
            change(out, pixels, channels, order[turn], strengths[order[turn]], gray);
}

/* ---------------------------------------------------------------------------------------------------------- look-up */

#ifdef HAS_AVX2
/* A value of four bytes is found byte by byte: sixteen registers hold the first bytes of all 256 values, then the second,
 * third and fourth ones. */
#define PIECE 4096 /* pixels whose channels are parted before they are looked up: they stay in the nearest cache */

typedef struct {
    uint8_t bytes[4][256];
} Parted;

static void part_table(const uint32_t *table, Parted *parted) {
    int part, value;
    for (part = 0; part < 4; part++)
        for (value = 0; value < 256; value++) parted->bytes[part][value] = (uint8_t)(table[value] >> (8 * part));
}

VBMI static void look_up_vbmi(const uint8_t *in, size_t number, const uint32_t *table, const Parted *parted,
                              uint32_t *out) {
    /* such that unpacking within each quarter of a register gives values in order */
    const __m512i turned = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i bytes[4][4];
    size_t place;
    int part, value;
    for (part = 0; part < 4; part++)
        for (value = 0; value < 4; value++) bytes[part][value] = _mm512_loadu_si512(parted->bytes[part] + 64 * value);
    for (place = 0; place + 64 <= number; place += 64) {
        const __m512i places = _mm512_permutexvar_epi32(turned, _mm512_loadu_si512(in + place));
        const __mmask64 upper = _mm512_movepi8_mask(places);
        const __m512i first = of_256(bytes[0], places, upper), second = of_256(bytes[1], places, upper);
        const __m512i third = of_256(bytes[2], places, upper), fourth = of_256(bytes[3], places, upper);
        const __m512i low = _mm512_unpacklo_epi8(first, second), high = _mm512_unpackhi_epi8(first, second);
        const __m512i more_low = _mm512_unpacklo_epi8(third, fourth), more_high = _mm512_unpackhi_epi8(third, fourth);
        _mm512_storeu_si512(out + place, _mm512_unpacklo_epi16(low, more_low));
        _mm512_storeu_si512(out + place + 16, _mm512_unpackhi_epi16(low, more_low));
        _mm512_storeu_si512(out + place + 32, _mm512_unpacklo_epi16(high, more_high));
        _mm512_storeu_si512(out + place + 48, _mm512_unpackhi_epi16(high, more_high));
    }
    for (; place < number; place++) out[place] = table[in[place]];
}

/* One instruction, which these processors have made for it: it does not fetch first what it overwrites. */
static INLINE void move_bytes(void *out, const void *in, size_t number) {
    __asm__ volatile("rep movsb" : "+D"(out), "+S"(in), "+c"(number) : : "memory");
}

/* The tables of up to three channels, parted: the same for all images of a batch. */
typedef struct {
    const uint32_t *table;
    size_t step;
    Parted of[3];
} Tables;

static const Parted *parted_tables(Tables *tables, const uint32_t *table, size_t step) {
    int channel;
    if (tables->table == table && tables->step == step) return tables->of;
    for (channel = 0; channel < (step ? 3 : 1); channel++) part_table(table + channel * step, tables->of + channel);
    for (; channel < 3; channel++) tables->of[channel] = tables->of[0];
    tables->table = table;
    tables->step = step;
    return tables->of;
}

VBMI static void look_up_all_vbmi(const uint8_t *in, size_t pixels, int channels, int lead, const uint32_t *table,
                                  size_t step, Tables *tables, uint32_t *out) {
    const Parted *parted = parted_tables(tables, table, channels == 1 ? 0 : step);
    uint8_t pieces[3][PIECE];
    uint32_t staged[PIECE];
    size_t place;
    int channel;
    if (channels != 3 || lead) {
        for (channel = 0; channel < channels; channel++)
            look_up_vbmi(in + channel * pixels, pixels, table + channel * step, parted + channel, out + channel * pixels);
        return;
    }
    for (place = 0; place < pixels; place += PIECE) {
        const size_t number = pixels - place < PIECE ? pixels - place : PIECE;
        part(in + 3 * place, number, pieces[0], PIECE);
        for (channel = 0; channel < 3; channel++) {
            look_up_vbmi(pieces[channel], number, table + channel * step, parted + channel, staged);
            move_bytes(out + channel * pixels + place, staged, number * sizeof *out);
        }
    }
}
#endif

/* What a table has for each byte, channels one after the other; it has 256 values for each, or (`step` 0) for all. */
#define LOOK_UP(TYPE)                                                                                                \
    static void look_up_##TYPE(const uint8_t *in, size_t pixels, int channels, int lead, const TYPE *table,          \
                               size_t step, TYPE *out) {                                                             \
        int channel;                                                                                                 \
        size_t pixel;                                                                                                \
        if (channels == 3 && !lead) {                                                                                \
            for (pixel = 0; pixel < pixels; pixel++) {                                                               \
                out[pixel] = table[in[3 * pixel]];                                                                   \
                out[pixels + pixel] = table[step + in[3 * pixel + 1]];                                               \
                out[2 * pixels + pixel] = table[2 * step + in[3 * pixel + 2]];                                       \
            }                                                                                                        \
            return;                                                                                                  \
        }                                                                                                            \
        for (channel = 0; channel < channels; channel++)                                                             \
            for (pixel = 0; pixel < pixels; pixel++)                                                                 \
                out[channel * pixels + pixel] = table[channel * step + in[channel * pixels + pixel]];                \
    }
LOOK_UP(uint16_t)
LOOK_UP(uint32_t)
LOOK_UP(uint64_t)

/* The same for bytes that become bytes; without a table they stay as they are. */
static void look_up_bytes(const uint8_t *in, size_t pixels, int channels, int lead, const uint8_t *table, size_t step,
                          uint8_t *out) {
    int channel;
    if (channels == 3 && !lead)
        part(in, pixels, out, pixels);
    else if (in != out)
        memcpy(out, in, channels * pixels);
    for (channel = 0; table && channel < channels; channel++, table += step) {
        uint8_t *bytes = out + channel * pixels;
        size_t pixel;
#ifdef HAS_AVX2
        if (has_vbmi) {
            replace_vbmi(bytes, pixels, table);
            continue;
        }
#endif
        for (pixel = 0; pixel < pixels; pixel++) bytes[pixel] = table[bytes[pixel]];
    }
}

/* ------------------------------------------------------------------------------------------------------ operations */

enum { RESAMPLE, CUT, JITTER, LOOK_UP, COPY, SUM };

/* One operation on every image; `each` and `other` have an entry for each of them, `fixed` is for all. */
typedef struct {
    /* more: cubic, or bytes of a value, 0 where bytes stay; less: tallest first, or the table's step */
    int64_t what, tall, wide, more, less;
    int64_t each, other, fixed;           /* boxes, places, order; strengths; fill, table, or one box */
} Operation;

typedef struct {
    const uint8_t *bytes;
    int height, width, channels, lead; /* lead: the channels lie one after the other */
} Image;

typedef struct {
    Resampling resampling;
    Memory gray, turns[2];
#ifdef HAS_AVX2
    Tables tables;
#endif
} Room;

#define ADDRESS(number) ((void *)(intptr_t)(number))

static size_t bytes_of(const Image *image) { return (size_t)image->height * image->width * image->channels; }

enum { DONE = 0, NO_MEMORY = -1, NO_WINDOW = -2 };

static int has_window(const Image *image, const int32_t *box) {
    return box[0] >= 0 && box[1] >= 0 && box[2] > 0 && box[3] > 0 && box[2] <= image->height - box[0] &&
           box[3] <= image->width - box[1];
}

static const int32_t *window_of(const Operation *op, int64_t number) {
    return op->what == RESAMPLE && op->fixed ? ADDRESS(op->fixed) : (int32_t *)ADDRESS(op->each) + 4 * number;
}

static int stands_first(const Operation *op, const int32_t *box) {
    return op->less && op->tall < box[2] && box[2] - op->tall > 2 * (box[3] - op->wide);
}

#define WIDE 64 /* pixels: shorter lines of one channel do not fill a register, see rows_between */

/* Whether the channels of an image are parted while it is made larger, since what is done `next` wants them so. */
static int parts(const Operation *op, const Operation *next, int64_t number, const Image *image) {
    const int32_t *box = window_of(op, number);
    if (op->what != RESAMPLE || image->lead || image->channels != 3 || (next->what != LOOK_UP && next->what != JITTER))
        return 0;
    return op->tall > box[2] && op->wide >= WIDE && !stands_first(op, box);
}

/* One operation on one image, the `number`-th; `image` becomes what it makes, without the bytes. `parted`: as `parts`
 * tells. */
static int operate(const Operation *op, int64_t number, int parted, Image *image, Room *room, uint8_t *out) {
    const int planes = image->lead ? image->channels : 1, channels = image->lead ? 1 : image->channels;
    const size_t pixels = (size_t)image->height * image->width;
    const int32_t *each = window_of(op, number);
    int plane;
    if (op->what == COPY) {
        memcpy(out, image->bytes, bytes_of(image));
        return 0;
    }
    if (op->what == SUM) {
        const uint64_t sum = sum_of_words(image->bytes, bytes_of(image));
        memcpy(out, &sum, sizeof sum);
        return 0;
    }
    if (op->what == JITTER) {
        uint8_t *gray = memory(&room->gray, pixels);
        if (!gray) return NO_MEMORY;
        jitter(image->bytes, pixels, image->channels, image->lead, each, (float *)ADDRESS(op->other) + 4 * number, gray,
               out);
        image->lead = image->channels > 1;
        return 0;
    }
    if (op->what == LOOK_UP) {
        if (op->more < 2)
            look_up_bytes(image->bytes, pixels, image->channels, image->lead, op->more ? ADDRESS(op->fixed) : NULL, op->less,
                          out);
        else if (op->more == 2)
            look_up_uint16_t(image->bytes, pixels, image->channels, image->lead, ADDRESS(op->fixed), op->less, (void *)out);
#ifdef HAS_AVX2
        else if (op->more == 4 && has_vbmi)
            look_up_all_vbmi(image->bytes, pixels, image->channels, image->lead, ADDRESS(op->fixed), op->less, &room->tables,
                             (void *)out);
#endif
        else if (op->more == 4)
            look_up_uint32_t(image->bytes, pixels, image->channels, image->lead, ADDRESS(op->fixed), op->less, (void *)out);
        else
            look_up_uint64_t(image->bytes, pixels, image->channels, image->lead, ADDRESS(op->fixed), op->less, (void *)out);
        return 0;
    }
    if (op->what == RESAMPLE && !has_window(image, each)) return NO_WINDOW;
    if (op->what == RESAMPLE &&
        make_lines(&room->resampling, each[2], each[3], (int)op->tall, (int)op->wide, (int)op->more,
                   (size_t)op->wide * channels))
        return -1;
    for (plane = 0; plane < planes; plane++) {
        const uint8_t *in = image->bytes + plane * pixels;
        uint8_t *into = out + (size_t)plane * op->tall * op->wide;
        if (op->what == CUT) {
            cut(in, image->height, image->width, channels, each, (int)op->tall, (int)op->wide,
                (uint8_t *)ADDRESS(op->fixed) + plane, into);
            continue;
        }
        in += ((size_t)each[0] * image->width + each[1]) * channels;
        if (parted ? resample_parted(in, (size_t)image->width * channels, each[3], (int)op->tall, (int)op->wide,
                                     &room->resampling, into)
                   : resample(in, (size_t)image->width * channels, each[3], channels, (int)op->tall, (int)op->wide,
                              stands_first(op, each), &room->resampling, into))
            return -1;
    }
    image->lead |= parted;
    image->height = (int)op->tall;
    image->width = (int)op->wide;
    return 0;
}

/* Images that become a batch: those at `rows` of `num_images`, or without it one after the other, beginning with the
 * `begin`-th of the batch. What becomes of them lies at `places` of `num_out`, or without it one after the other; with
 * `each`, that many lie together, and `out` holds the addresses of where. */
typedef struct {
    const Operation *ops;
    int64_t number; /* of operations */
    Image given;
    const int64_t *rows, *places;
    int64_t num_images, num_out, begin, each;
    void *out;
    size_t out_bytes; /* of one */
} Work;

static uint8_t *room_for(const Work *work, int64_t place) {
    if (work->each) return (uint8_t *)((void **)work->out)[place / work->each] + place % work->each * work->out_bytes;
    return (uint8_t *)work->out + (work->places ? work->places[place] : place) * work->out_bytes;
}

#define AHEAD 6            /* images: rows from all over the memory would be waited for one after the other */
#define FETCHED_BYTES 4096 /* of each */

static INLINE void fetch(const uint8_t *bytes, size_t number) {
#ifdef __GNUC__
    size_t place;
    for (place = 0; place < number && place < FETCHED_BYTES; place += 64) __builtin_prefetch(bytes + place);
#else
    (void)bytes, (void)number;
#endif
}

static void end_room(Room *room) {
    end_resampling(&room->resampling);
    free(room->gray.bytes);
    free(room->turns[0].bytes);
    free(room->turns[1].bytes);
}

/* All operations on the images that become the `first` to `last` of a batch; `room` begins as zeros. */
static int operate_in(Room *room, const Work *work, int64_t first, int64_t last) {
    const size_t bytes = bytes_of(&work->given);
    const int64_t *rows = work->rows;
    int64_t place, at;
    int failed = 0;
    for (place = first; place < last && !failed; place++) {
        Image image = work->given;
        image.bytes += (rows ? rows[place] : place - work->begin) * bytes;
        if (rows && place + AHEAD < last) fetch(work->given.bytes + rows[place + AHEAD] * bytes, bytes);
        for (at = 0; at < work->number && !failed; at++) {
            const Operation *op = work->ops + at;
            const int is_last = at == work->number - 1, parted = !is_last && parts(op, op + 1, place, &image);
            const int in_place = parted && at == work->number - 2 && op[1].what == LOOK_UP && op[1].more < 2;
            uint8_t *into = room_for(work, place);
            if (!is_last && !in_place) {
                const int same = op->what == JITTER;
                const size_t pixels = same ? (size_t)image.height * image.width : (size_t)op->tall * op->wide;
                into = memory(&room->turns[at % 2], pixels * image.channels);
            }
            failed = into ? operate(op, place, parted, &image, room, into) : NO_MEMORY;
            image.bytes = into;
        }
    }
    return failed;
}

static int operate_all(const Work *work, int64_t first, int64_t last) {
    Room room = {0};
    const int failed = operate_in(&room, work, first, last);
    end_room(&room);
    return failed;
}

#ifdef HAS_THREADS
#define MOST_THREADS 64
#define PIECES 4 /* for each thread: they seldom end at the same time */

/* The same on several threads, which end with it; each takes a piece of the batch when it has done its last one. */
typedef struct {
    const Work *work;
    int64_t last, piece;
    int64_t next; /* image that nobody has taken */
    int failed;
} Shared;

static void *work_on(void *given) {
    Shared *shared = given;
    Room room = {0};
    for (;;) {
        const int64_t first = __atomic_fetch_add(&shared->next, shared->piece, __ATOMIC_RELAXED);
        const int64_t last = shared->last - first < shared->piece ? shared->last : first + shared->piece;
        int failed;
        if (first >= shared->last || __atomic_load_n(&shared->failed, __ATOMIC_RELAXED)) break;
        failed = operate_in(&room, shared->work, first, last);
        if (failed) __atomic_store_n(&shared->failed, failed, __ATOMIC_RELAXED);
    }
    end_room(&room);
    return NULL;
}

/* Threads of the OpenMP library that torch computes with, which wait for work for a while: GCC's, by its stable entry. */
typedef void (*Parallel)(void (*work)(void *), void *given, unsigned threads, unsigned flags);
static Parallel parallel;
static pid_t of_process; /* that may use it: in one that is forked from it those threads are not there */

static void work_in_parallel(void *given) { work_on(given); }

static int operate_together(const Work *work, int64_t number, int64_t threads, int waiting) {
    const int64_t most = threads < MOST_THREADS ? threads : MOST_THREADS, pieces = PIECES * most;
    Shared shared = {work, number, (number + pieces - 1) / pieces, 0, 0};
    pthread_t others[MOST_THREADS];
    sigset_t every, before;
    int started = 0;
    if (waiting && parallel && getpid() == of_process) {
        parallel(work_in_parallel, &shared, (unsigned)most, 0);
        return shared.failed;
    }
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before); /* the others inherit it: a signal is for those who can answer */
    while (started < most - 1 && !pthread_create(others + started, NULL, work_on, &shared)) started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work_on(&shared);
    while (started--) pthread_join(others[started], NULL);
    return shared.failed;
}
#endif

/* ------------------------------------------------------------------------------------------------- pixels of Pillow */

/* The Arrow C data interface (arrow.apache.org/docs/format/CDataInterface.html), as far as it is needed. */
typedef struct Array {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct Array **children;
} Array;

typedef struct Schema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct Schema **children;
} Schema;

#ifdef HAS_AVX2
/* Three bytes of each four, four pixels a time, while six are left: the last two of sixteen bytes are overwritten. */
AVX2 static size_t without_fourth_avx2(const uint8_t *in, size_t pixels, uint8_t *out) {
    const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    size_t place;
    for (place = 0; place + 6 <= pixels; place += 4) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(in + 4 * place));
        _mm_storeu_si128((__m128i *)(out + 3 * place), _mm_shuffle_epi8(bytes, order));
    }
    return place;
}
#endif

static void write_pixels(const uint8_t *in, size_t pixels, int channels, uint8_t *out) {
    size_t place = 0;
    if (channels == 1) {
        memcpy(out, in, pixels);
        return;
    }
#ifdef HAS_AVX2
    if (has_avx2) place = without_fourth_avx2(in, pixels, out);
#endif
    for (; place < pixels; place++) memcpy(out + 3 * place, in + 4 * place, 3);
}

/* Where the bytes are that an image of Pillow has exported, four of them for each colored pixel, one for each gray one;
 * NULL where the export is not of that form. */
static const uint8_t *exported(const Schema *schema, const Array *array, int64_t pixels, int channels) {
    if (channels == 3) {
        if (strcmp(schema->format, "+w:4") || schema->n_children != 1 || array->n_children != 1) return NULL;
        if (array->length != pixels || array->offset) return NULL;
        schema = schema->children[0];
        array = array->children[0];
        pixels *= 4;
    }
    if (strcmp(schema->format, "C") || array->length != pixels || array->offset || array->n_buffers != 2) return NULL;
    return array->buffers[1];
}

/* ---------------------------------------------------------------------------------------------------------- Python */

enum { OPERATIONS, NUMBER, IMAGES, HEIGHT, WIDTH, CHANNELS, LEAD, NUM_IMAGES, ROWS, FIRST, LAST, OUT, OUT_BYTES, NUM_OUT,
       PLACES, EACH, THREADS, WAITING, ARGUMENTS };

/* Look whether all places from `first` to `last` are among `number`. */
static int are_within(const int64_t *places, int64_t first, int64_t last, int64_t number) {
    for (; places && first < last; first++) {
        const int64_t place = places[first];
        if (place >= 0 && place < number) continue;
        PyErr_Format(PyExc_IndexError, "there is no row %lld of %lld", (long long)place, (long long)number);
        return 0;
    }
    return 1;
}

static PyObject *py_operate(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    int64_t numbers[ARGUMENTS];
    int place, failed;
    Work work;
    (void)self;
    if (given != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "%d numbers are needed, not %zd", ARGUMENTS, given);
    for (place = 0; place < ARGUMENTS; place++) {
        numbers[place] = PyLong_AsLongLong(args[place]);
        if (numbers[place] == -1 && PyErr_Occurred()) return NULL;
    }
    work.ops = ADDRESS(numbers[OPERATIONS]);
    work.number = numbers[NUMBER];
    work.given.bytes = ADDRESS(numbers[IMAGES]);
    work.given.height = (int)numbers[HEIGHT];
    work.given.width = (int)numbers[WIDTH];
    work.given.channels = (int)numbers[CHANNELS];
    work.given.lead = (int)numbers[LEAD];
    work.num_images = numbers[NUM_IMAGES];
    work.rows = ADDRESS(numbers[ROWS]);
    work.begin = numbers[FIRST];
    work.out = ADDRESS(numbers[OUT]);
    work.out_bytes = (size_t)numbers[OUT_BYTES];
    work.num_out = numbers[NUM_OUT];
    work.places = ADDRESS(numbers[PLACES]);
    work.each = numbers[EACH];
    if (!are_within(work.rows, numbers[FIRST], numbers[LAST], work.num_images)) return NULL;
    if (!are_within(work.places, numbers[FIRST], numbers[LAST], work.num_out)) return NULL;
    Py_BEGIN_ALLOW_THREADS
#ifdef HAS_THREADS
    if (numbers[THREADS] > 1 && !numbers[FIRST])
        failed = operate_together(&work, numbers[LAST], numbers[THREADS], (int)numbers[WAITING]);
    else
#endif
        failed = operate_all(&work, numbers[FIRST], numbers[LAST]);
    Py_END_ALLOW_THREADS
    if (failed == NO_WINDOW) PyErr_SetString(PyExc_ValueError, "a window lies beyond its image");
    if (failed == NO_MEMORY) PyErr_NoMemory();
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------------------------------------------------ records */

typedef struct {
    int64_t start, bytes; /* of a field within its record */
} Field;

#define BLOCK 64 /* records, which stay in a core's nearest cache */

/* One field of some records; the size is known where the loop is made, but for odd ones. */
#define COPY_FIELDS(size) for (at = 0; at < number; at++) memcpy(out + at * (size), in[at] + start, (size)); break

static void copy_field(uint8_t *out, const uint8_t *const *in, int64_t number, size_t start, size_t bytes) {
    int64_t at;
    switch (bytes) {
    case 1: COPY_FIELDS(1);
    case 2: COPY_FIELDS(2);
    case 4: COPY_FIELDS(4);
    case 8: COPY_FIELDS(8);
    case 64: COPY_FIELDS(64);
    default: COPY_FIELDS(bytes);
    }
}

/* The fields of the records at some places, each to memory of its own: `out` has an address for every field of every
   batch of `each` records. */
static void gather_records(const uint8_t *records, size_t bytes, const int64_t *places, int64_t number, int64_t each,
                           const Field *fields, int64_t num_fields, void **out) {
    const uint8_t *in[BLOCK];
    int64_t begin = 0, place, at, ahead;
    for (ahead = 0; ahead < number && ahead < BLOCK; ahead++) fetch(records + places[ahead] * bytes, bytes);
    while (begin < number) {
        const int64_t inside = begin % each, left = each - inside < number - begin ? each - inside : number - begin;
        const int64_t some = left < BLOCK ? left : BLOCK;
        for (place = 0; place < some; place++) {
            in[place] = records + places[begin + place] * bytes;
            if (begin + place + BLOCK < number) fetch(records + places[begin + place + BLOCK] * bytes, bytes);
        }
        for (at = 0; at < num_fields; at++)
            copy_field((uint8_t *)out[at] + inside * fields[at].bytes, in, some, (size_t)fields[at].start,
                       (size_t)fields[at].bytes);
        begin += some;
        if (begin % each == 0) out += num_fields;
    }
}

/* The other way: fields that lie each in memory of its own are written to records that lie one after the other. */
static void put_records(uint8_t *records, size_t bytes, int64_t number, const Field *fields, int64_t num_fields,
                        void **in) {
    int64_t place, at;
    for (place = 0; place < number; place++, records += bytes)
        for (at = 0; at < num_fields; at++)
            memcpy(records + fields[at].start, (uint8_t *)in[at] + place * fields[at].bytes, (size_t)fields[at].bytes);
}

enum { R_RECORDS, R_BYTES, R_TOTAL, R_PLACES, R_NUMBER, R_EACH, R_FIELDS, R_NUM_FIELDS, R_MEMORY, R_ARGUMENTS };

static PyObject *py_records(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    int64_t numbers[R_ARGUMENTS];
    const int64_t *places;
    int place;
    (void)self;
    if (given != R_ARGUMENTS) return PyErr_Format(PyExc_TypeError, "%d numbers are needed, not %zd", R_ARGUMENTS, given);
    for (place = 0; place < R_ARGUMENTS; place++) {
        numbers[place] = PyLong_AsLongLong(args[place]);
        if (numbers[place] == -1 && PyErr_Occurred()) return NULL;
    }
    places = ADDRESS(numbers[R_PLACES]);
    if (!are_within(places, 0, numbers[R_NUMBER], numbers[R_TOTAL])) return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (places)
        gather_records(ADDRESS(numbers[R_RECORDS]), (size_t)numbers[R_BYTES], places, numbers[R_NUMBER],
                       numbers[R_EACH], ADDRESS(numbers[R_FIELDS]), numbers[R_NUM_FIELDS], ADDRESS(numbers[R_MEMORY]));
    else
        put_records(ADDRESS(numbers[R_RECORDS]), (size_t)numbers[R_BYTES], numbers[R_NUMBER],
                    ADDRESS(numbers[R_FIELDS]), numbers[R_NUM_FIELDS], ADDRESS(numbers[R_MEMORY]));
    Py_END_ALLOW_THREADS
    return Py_NewRef(Py_None);
}

#define QUICK 65536 /* bytes that are copied before another thread could have taken the interpreter's lock */

static PyObject *py_pixels(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    const Schema *schema;
    const Array *array;
    const uint8_t *bytes;
    int64_t pixels, channels;
    uint8_t *out;
    (void)self;
    if (given != 5) return PyErr_Format(PyExc_TypeError, "5 arguments are needed, not %zd", given);
    schema = PyCapsule_GetPointer(args[0], "arrow_schema");
    array = schema ? PyCapsule_GetPointer(args[1], "arrow_array") : NULL;
    if (!array) return NULL;
    pixels = PyLong_AsLongLong(args[2]);
    channels = PyLong_AsLongLong(args[3]);
    out = ADDRESS(PyLong_AsLongLong(args[4]));
    if (PyErr_Occurred()) return NULL;
    bytes = exported(schema, array, pixels, (int)channels);
    if (!bytes) return Py_NewRef(Py_False);
    if (pixels * channels <= QUICK) {
        write_pixels(bytes, (size_t)pixels, (int)channels, out);
        return Py_NewRef(Py_True);
    }
    Py_BEGIN_ALLOW_THREADS
    write_pixels(bytes, (size_t)pixels, (int)channels, out);
    Py_END_ALLOW_THREADS
    return Py_NewRef(Py_True);
}

enum { PLAIN, SOME_AVX2, SOME_AVX512, MOST }; /* instructions */

static int use(int level) {
    int found = PLAIN;
#ifdef HAS_AVX2
    has_avx2 = level >= SOME_AVX2 && __builtin_cpu_supports("avx2");
    has_avx512 =
        level >= SOME_AVX512 && has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    has_vbmi = level >= MOST && has_avx512 && __builtin_cpu_supports("avx512vbmi");
    found = has_avx2 + has_avx512 + has_vbmi;
#else
    (void)level;
#endif
    return found;
}

static PyObject *py_use(PyObject *self, PyObject *level) {
    const long wanted = PyLong_AsLong(level);
    (void)self;
    return wanted == -1 && PyErr_Occurred() ? NULL : PyLong_FromLong(use((int)wanted));
}

static PyMethodDef methods[] = {
    {"use", py_use, METH_O,
     "use(level): of the processor's instructions only plain ones (0), AVX2 (1), AVX-512 (2), VBMI (3), too; for tests. "
     "Return the level that there is."},
    {"pixels", (PyCFunction)(void (*)(void))py_pixels, METH_FASTCALL,
     "pixels(schema, array, pixels, channels, out): write what an image exports; False where it is of another form"},
    {"operate", (PyCFunction)(void (*)(void))py_operate, METH_FASTCALL,
     "operate(operations, number, images, height, width, channels, lead, num_images, rows, first, last, out, out_bytes, "
     "num_out, places, each, threads, waiting)"},
    {"records", (PyCFunction)(void (*)(void))py_records, METH_FASTCALL,
     "records(records, bytes, total, places, number, each, fields, num_fields, memory): gather the fields of records, or "
     "write them where there are no places"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Addresses in, images out; see native.py.", 0, methods,
                             NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    use(MOST);
#ifdef HAS_AVX2
    find_channels();
#endif
#ifdef HAS_THREADS
    parallel = (Parallel)(intptr_t)dlsym(RTLD_DEFAULT, "GOMP_parallel");
    of_process = getpid();
#endif
    return PyModule_Create(&module);
}
