#include "codec/kernels.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "codec/number_bits.h"

namespace varve::kernels {

namespace {

/// Kept between calls: first touch of fresh memory costs more than the transform.
class Scratch {
 public:
  template <class T>
  std::span<T> take(size_t count) {
    const size_t words = (count * sizeof(T) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    if (words_.size() < words) words_.resize(words);
    return {reinterpret_cast<T*>(words_.data()), count};
  }
  void shrink() {
    constexpr size_t kept_words_max = 8_MiB / sizeof(uint64_t);
    if (words_.size() > kept_words_max) words_ = std::vector<uint64_t>();  // `= {}` would keep the memory
  }

 private:
  std::vector<uint64_t> words_;
};

struct RunBuffers {
  const std::byte* in;
  std::byte* out;
  uint64_t* scratch = nullptr;  ///< room for scratch_elements()
  size_t begin = 0, end = 0;    ///< of a piece, in elements of the run
};

/// What is done at a time, so that it stays in the first-level cache.
template <class T>
constexpr size_t kTileElements = 4_KiB / sizeof(T);

/// The strides of a run's differences together: so far back lies what a difference reaches.
size_t reach_of(const DifferenceRun& run) {
  size_t reach = 0;
  for (size_t i = 0; i < run.stride_count; ++i) reach += std::min<size_t>(run.strides[i], run.elements);
  return reach;
}

/// Whether all differences of the run are taken at once.
bool goes_at_once(const DifferenceRun& run) {
  return (run.stride_count == 2 || run.stride_count == 3) && reach_of(run) < run.elements;
}

/// How far numbers are put down before the last of them are moved to the beginning again: seldom, beside the work on
/// them, and near enough for the first-level cache where the strides are short.
template <class T>
size_t window_elements(size_t reach) {
  const size_t tiles = std::max<size_t>(reach / kTileElements<T> + 1, 4);
  return reach + tiles * kTileElements<T>;
}

/// Several differences at once: of what is taken away twice, and so given back, and so on. Zeros before the first
/// number are what a difference leaves it as it is by. `scratch` has room for window_elements().
template <class T, bool kSwap, NumberMap kMap, size_t kDifferences>
VARVE_KERNEL_BODY void forward_at_once(const DifferenceRun& run, const std::byte* __restrict in,
                                       std::byte* __restrict out, T* __restrict scratch) {
  static_assert(kDifferences == 2 || kDifferences == 3);
  const size_t reach = reach_of(run), window = window_elements<T>(reach);
  std::fill_n(scratch, reach, T{0});
  const size_t x = run.strides[0], y = run.strides[1], z = kDifferences == 3 ? run.strides[2] : 0;
  const auto plane = [x, y](const T* at) {
    return static_cast<T>(static_cast<T>(at[0] - *(at - x)) - static_cast<T>(*(at - y) - *(at - y - x)));
  };
  size_t filled = reach;
  for (size_t begin = 0; begin < run.elements; begin += kTileElements<T>) {
    if (filled == window) {
      std::copy_n(scratch + window - reach, reach, scratch);
      filled = reach;
    }
    T* values = scratch + filled;
    const size_t count = std::min<size_t>(run.elements - begin, kTileElements<T>);
    for (size_t i = 0; i < count; ++i) values[i] = Number<T, kSwap, kMap>::get(in, begin + i);
    for (size_t i = 0; i < count; ++i) {
      T difference = plane(values + i);
      if constexpr (kDifferences == 3) difference = static_cast<T>(difference - plane(values + i - z));
      store(out, begin + i, to_zigzag(difference));
    }
    filled += kTileElements<T>;
  }
}

template <class T, bool kSwap, NumberMap kMap>
VARVE_KERNEL_BODY void forward_run(const DifferenceRun& run, const std::byte* __restrict in, std::byte* __restrict out,
                                   T* scratch) {
  using Value = Number<T, kSwap, kMap>;
  const size_t count = run.elements;
  const size_t first = std::min<size_t>(run.strides[0], count);
  if (run.stride_count == 1) {
    for (size_t i = 0; i < first; ++i) store(out, i, to_zigzag(Value::get(in, i)));
    for (size_t i = first; i < count; ++i) {
      store(out, i, to_zigzag(static_cast<T>(Value::get(in, i) - Value::get(in, i - first))));
    }
    return;
  }
  if (goes_at_once(run)) {
    return run.stride_count == 2 ? forward_at_once<T, kSwap, kMap, 2>(run, in, out, scratch)
                                 : forward_at_once<T, kSwap, kMap, 3>(run, in, out, scratch);
  }
  T* __restrict from = scratch;
  T* __restrict to = scratch + count;
  for (size_t i = 0; i < first; ++i) from[i] = Value::get(in, i);
  for (size_t i = first; i < count; ++i) from[i] = static_cast<T>(Value::get(in, i) - Value::get(in, i - first));
  for (size_t pass = 1; pass + 1 < run.stride_count; ++pass) {
    const size_t stride = std::min<size_t>(run.strides[pass], count);
    for (size_t i = 0; i < stride; ++i) to[i] = from[i];
    for (size_t i = stride; i < count; ++i) to[i] = static_cast<T>(from[i] - from[i - stride]);
    std::swap(from, to);
  }
  const size_t stride = std::min<size_t>(run.strides[run.stride_count - 1], count);
  for (size_t i = 0; i < stride; ++i) store(out, i, to_zigzag(from[i]));
  for (size_t i = stride; i < count; ++i) store(out, i, to_zigzag(static_cast<T>(from[i] - from[i - stride])));
}

/// The differences of the numbers from `begin` to `end` of a run: each is the sum of what its strides, none, some or
/// all of them, lead back to, those of an odd number of strides taken away. What lies before the run is zero.
template <class T, bool kSwap, NumberMap kMap>
VARVE_KERNEL_BODY void forward_piece(const DifferenceRun& run, const std::byte* __restrict in, size_t begin, size_t end,
                                     std::byte* __restrict out) {
  T sums[kTileElements<T>];
  for (size_t tile = begin; tile < end; tile += kTileElements<T>) {
    const size_t count = std::min(end - tile, kTileElements<T>);
    std::fill_n(sums, count, T{0});
    for (unsigned subset = 0; subset < 1U << run.stride_count; ++subset) {
      size_t back = 0;
      for (size_t i = 0; i < run.stride_count && back < tile + count; ++i)
        back += (subset >> i & 1) != 0 ? std::min<size_t>(run.strides[i], tile + count) : 0;
      const size_t first = back > tile ? std::min(back - tile, count) : 0;
      const auto value = [&](size_t i) { return Number<T, kSwap, kMap>::get(in, tile + i - back); };
      if (std::popcount(subset) % 2 == 0) {
        for (size_t i = first; i < count; ++i) sums[i] = static_cast<T>(sums[i] + value(i));
      } else {
        for (size_t i = first; i < count; ++i) sums[i] = static_cast<T>(sums[i] - value(i));
      }
    }
    for (size_t i = 0; i < count; ++i) store(out, tile - begin + i, to_zigzag(sums[i]));
  }
}

/// Of a vector's lanes, each moved up by kLanes, with zeros behind.
template <size_t kLanes, class Vector, size_t... kIndex>
VARVE_KERNEL_BODY Vector lanes_up(Vector vector, std::index_sequence<kIndex...>) {
  constexpr size_t count = sizeof...(kIndex);
  return __builtin_shufflevector(vector, Vector{}, (kIndex < kLanes ? count : kIndex - kLanes)...);
}

/// The last kStride lanes, over and over.
template <size_t kStride, class Vector, size_t... kIndex>
VARVE_KERNEL_BODY Vector last_lanes(Vector vector, std::index_sequence<kIndex...>) {
  return __builtin_shufflevector(vector, vector, (sizeof...(kIndex) - kStride + kIndex % kStride)...);
}

/// values[i] += values[i - kStride], from the front. Sums of small numbers take several at a time; of large ones, a sum
/// through memory takes five times as long as one in a register.
template <size_t kStride, class T>
VARVE_KERNEL_BODY void sum_up(T* values, size_t count) {
  size_t i = 0;
  constexpr size_t lanes = 16 / sizeof(T);
  if constexpr (kStride < lanes && sizeof(T) <= 4) {
    using Vector [[gnu::vector_size(16)]] = T;
    constexpr auto all = std::make_index_sequence<lanes>();
    Vector sums{};
    for (; i + lanes <= count; i += lanes) {
      Vector vector;
      std::memcpy(&vector, values + i, sizeof vector);
      vector += lanes_up<kStride>(vector, all);
      if constexpr (2 * kStride < lanes) vector += lanes_up<2 * kStride>(vector, all);
      if constexpr (4 * kStride < lanes) vector += lanes_up<4 * kStride>(vector, all);
      if constexpr (8 * kStride < lanes) vector += lanes_up<8 * kStride>(vector, all);
      sums = vector + last_lanes<kStride>(sums, all);
      std::memcpy(values + i, &sums, sizeof sums);
    }
  } else if constexpr (kStride == 1) {
    T sum = 0;
    for (; i < count; ++i) values[i] = sum = static_cast<T>(sum + values[i]);
  }
  for (i = std::max(i, kStride); i < count; ++i) values[i] = static_cast<T>(values[i] + values[i - kStride]);
}

/// The same for any stride.
template <class T>
VARVE_KERNEL_BODY void accumulate(T* values, size_t count, size_t stride) {
  switch (stride) {
    case 1: return sum_up<1>(values, count);
    case 2: return sum_up<2>(values, count);
    case 3: return sum_up<3>(values, count);
    case 4: return sum_up<4>(values, count);
    case 5: return sum_up<5>(values, count);
    case 6: return sum_up<6>(values, count);
    case 7: return sum_up<7>(values, count);
    default: break;
  }
  for (size_t start = stride; start < count; start += stride) {
    const size_t length = std::min(stride, count - start);
    T* __restrict row = values + start;
    const T* __restrict before = values + start - stride;
    for (size_t i = 0; i < length; ++i) row[i] = static_cast<T>(row[i] + before[i]);
  }
}

/// values[i] += values[i - stride] for `count` numbers that follow `stride` others.
template <class T>
VARVE_KERNEL_BODY void accumulate_after(T* values, size_t count, size_t stride) {
  for (size_t begin = 0; begin < count; begin += stride) {
    const size_t length = std::min(stride, count - begin);
    T* __restrict row = values + begin;
    const T* __restrict before = values + begin - stride;
    for (size_t i = 0; i < length; ++i) row[i] = static_cast<T>(row[i] + before[i]);
  }
}

/// Puts down numbers, the first of them at `begin`, of which each is `values` and the number `stride` before it.
template <class T, bool kSwap, NumberMap kMap>
VARVE_KERNEL_BODY void put_sums(const T* values, size_t begin, size_t count, size_t stride, std::byte* out) {
  using Value = Number<T, kSwap, kMap>;
  size_t done = begin < stride ? std::min(stride - begin, count) : 0;
  for (size_t i = 0; i < done; ++i) Value::put(out, begin + i, values[i]);
  for (size_t length = 0; done < count; done += length) {
    length = std::min(stride, count - done);
    const T* __restrict row = values + done;
    const std::byte* __restrict before = out + (begin + done - stride) * sizeof(T);
    std::byte* __restrict to = out + (begin + done) * sizeof(T);
    for (size_t i = 0; i < length; ++i) Value::put(to, i, static_cast<T>(row[i] + Value::get(before, i)));
  }
}

/// The differences of a run of two or three dimensions that are undone tile by tile.
struct TiledDifferences {
  size_t along_rows = 0;  ///< how often one was taken along the rows
  size_t row = 0;         ///< the other strides
  size_t plane = 0;       ///< 0: of two dimensions

  /// None if the run is not like that.
  static std::optional<TiledDifferences> of(const DifferenceRun& run) {
    constexpr size_t row_elements_min = 8, plane_elements_min = 256;  // shorter ones take longer so
    TiledDifferences found;
    for (size_t i = 0; i < run.stride_count; ++i) {
      const size_t stride = std::min<size_t>(run.strides[i], run.elements);
      if (stride == 1) {
        ++found.along_rows;
      } else if (stride < row_elements_min || found.plane != 0) {
        return std::nullopt;
      } else {
        (found.row == 0 ? found.row : found.plane) = stride;
      }
    }
    const bool thin = found.plane != 0 && found.plane < plane_elements_min;
    if (found.along_rows == 0 || found.row == 0 || thin) return std::nullopt;
    return found;
  }
  template <class T>
  size_t tile_elements() const {
    return std::max(kTileElements<T>, row);
  }
};

/// Sums may be taken in any order, so those along the fastest dimension come first, of which no more than the last is
/// needed again; of those across the rows a row is, and the others are numbers that have been put down. `scratch` has
/// room for a row and a tile.
template <class T, bool kSwap, NumberMap kMap>
VARVE_KERNEL_BODY void inverse_by_tiles(const DifferenceRun& run, const TiledDifferences& strides,
                                        const std::byte* __restrict in, std::byte* out, T* __restrict scratch) {
  const size_t count = run.elements, row = strides.row, tile_elements = strides.tile_elements<T>();
  std::fill_n(scratch, row, T{0});
  T* values = scratch + row;
  T sums[kDifferencesMax] = {};
  for (size_t begin = 0; begin < count; begin += tile_elements) {
    const size_t length = std::min(tile_elements, count - begin);
    for (size_t i = 0; i < length; ++i) values[i] = from_zigzag(load<T>(in, begin + i));
    for (size_t pass = 0; pass < strides.along_rows; ++pass) {
      values[0] = static_cast<T>(values[0] + sums[pass]);
      sum_up<1>(values, length);
      sums[pass] = values[length - 1];
    }
    accumulate_after(values, length, row);
    if (strides.plane == 0) {
      for (size_t i = 0; i < length; ++i) Number<T, kSwap, kMap>::put(out, begin + i, values[i]);
    } else {
      put_sums<T, kSwap, kMap>(values, begin, length, strides.plane, out);
    }
    std::copy(values + length - row, values + length, scratch);  // of the last tile too few, in vain
  }
}

template <class T, bool kSwap, NumberMap kMap>
VARVE_KERNEL_BODY void inverse_run(const DifferenceRun& run, const std::byte* __restrict in, std::byte* __restrict out,
                                   T* __restrict scratch) {
  using Value = Number<T, kSwap, kMap>;
  const size_t count = run.elements;
  if (run.stride_count == 1 && run.strides[0] == 1) {
    T tile[kTileElements<T>];
    T sum = 0;
    for (size_t start = 0; start < count; start += kTileElements<T>) {
      const size_t length = std::min(kTileElements<T>, count - start);
      for (size_t i = 0; i < length; ++i) tile[i] = from_zigzag(load<T>(in, start + i));
      tile[0] = static_cast<T>(tile[0] + sum);
      sum_up<1>(tile, length);
      sum = tile[length - 1];
      for (size_t i = 0; i < length; ++i) Value::put(out, start + i, tile[i]);
    }
    return;
  }
  if (const auto tiled = TiledDifferences::of(run))
    return inverse_by_tiles<T, kSwap, kMap>(run, *tiled, in, out, scratch);
  for (size_t i = 0; i < count; ++i) scratch[i] = from_zigzag(load<T>(in, i));
  for (size_t pass = run.stride_count; pass > 0; --pass) accumulate(scratch, count, run.strides[pass - 1]);
  for (size_t i = 0; i < count; ++i) Value::put(out, i, scratch[i]);
}

enum class Way { forward, inverse, piece };

/// That a run needs, as numbers.
template <Way kWay, class T>
size_t scratch_elements(const DifferenceRun& run) {
  if constexpr (kWay == Way::forward) {
    if (run.stride_count == 1) return 0;
    return goes_at_once(run) ? window_elements<T>(reach_of(run)) : 2 * run.elements;
  }
  if (run.stride_count == 1 && run.strides[0] == 1) return 0;
  const auto tiled = TiledDifferences::of(run);
  return tiled ? tiled->row + tiled->tile_elements<T>() : run.elements;
}

template <class T, bool kSwap, NumberMap kMap, Way kWay>
VARVE_KERNEL_BODY void any_way(const DifferenceRun& run, const RunBuffers& at) {
  if constexpr (kWay == Way::forward) forward_run<T, kSwap, kMap>(run, at.in, at.out, reinterpret_cast<T*>(at.scratch));
  if constexpr (kWay == Way::inverse) inverse_run<T, kSwap, kMap>(run, at.in, at.out, reinterpret_cast<T*>(at.scratch));
  if constexpr (kWay == Way::piece) forward_piece<T, kSwap, kMap>(run, at.in, at.begin, at.end, at.out);
}
template <class T, bool kSwap, NumberMap kMap, Way kWay>
void baseline(const DifferenceRun& run, const RunBuffers& at) {
  any_way<T, kSwap, kMap, kWay>(run, at);
}
template <class T, bool kSwap, NumberMap kMap, Way kWay>
VARVE_TARGET_AVX2 void avx2(const DifferenceRun& run, const RunBuffers& at) {
  any_way<T, kSwap, kMap, kWay>(run, at);
}

using RunKernel = void (*)(const DifferenceRun&, const RunBuffers&);

template <Way kWay, class T, bool kSwap, NumberMap kMap>
RunKernel pick() {
  return machine_has_avx2() ? avx2<T, kSwap, kMap, kWay> : baseline<T, kSwap, kMap, kWay>;
}
template <Way kWay, class T, NumberMap kMap>
RunKernel pick(NumberFormat format) {
  return format.big_endian ? pick<kWay, T, true, kMap>() : pick<kWay, T, false, kMap>();
}
template <Way kWay, class T>
RunKernel pick(NumberFormat format) {
  if (format.sign_last) return pick<kWay, T, NumberMap::sign_last>(format);
  return format.floating ? pick<kWay, T, NumberMap::ordered>(format) : pick<kWay, T, NumberMap::itself>(format);
}
template <Way kWay>
RunKernel pick(NumberFormat format) {
  switch (format.bytes) {
    case 2: return pick<kWay, uint16_t>(format);
    case 4: return pick<kWay, uint32_t>(format);
    case 8: return pick<kWay, uint64_t>(format);
    default: return pick<kWay, uint8_t>(format);
  }
}

template <Way kWay>
size_t scratch_bytes(NumberFormat format, const DifferenceRun& run) {
  switch (format.bytes) {
    case 2: return scratch_elements<kWay, uint16_t>(run) * 2;
    case 4: return scratch_elements<kWay, uint32_t>(run) * 4;
    case 8: return scratch_elements<kWay, uint64_t>(run) * 8;
    default: return scratch_elements<kWay, uint8_t>(run);
  }
}

template <Way kWay>
void for_each_run(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out) {
  thread_local Scratch scratch;
  size_t bytes_max = 0;
  for (const DifferenceRun& run : runs) bytes_max = std::max(bytes_max, scratch_bytes<kWay>(format, run));
  const std::span<uint64_t> room = scratch.take<uint64_t>((bytes_max + 7) / 8);
  const RunKernel kernel = pick<kWay>(format);
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    if (run.elements == 0) continue;
    kernel(run, {.in = in.data() + at, .out = out.data() + at, .scratch = room.data()});
    at += run.elements * format.bytes;
  }
  scratch.shrink();
}

/// All distances of one position are looked at together: their bytes are neighbours, and the first of every four.
VARVE_KERNEL_BODY void count_matches_body(const std::byte* bytes, std::span<const size_t> positions,
                                          std::span<uint32_t> matches) {
  for (const size_t at : positions) {
    const auto value = static_cast<uint32_t>(bytes[at]);
    const std::byte* const before = bytes + at - 4 * matches.size();
    for (size_t i = 0; i < matches.size(); ++i) matches[i] += (load_le<uint32_t>(before + 4 * i) & 0xff) == value;
  }
}
VARVE_TARGET_AVX2 void count_matches_avx2(const std::byte* bytes, std::span<const size_t> positions,
                                          std::span<uint32_t> matches) {
  count_matches_body(bytes, positions, matches);
}

VARVE_KERNEL_BODY void count_near_body(float value, std::span<const float> values, std::span<uint32_t> counts) {
  const float near = std::abs(value) / 2, nearer = near / 4, nearest = nearer / 4;
  for (size_t i = 0; i < values.size(); ++i) {
    const float off = std::abs(value - values[i]);
    counts[i] += uint32_t{off < near} + uint32_t{off < nearer} + uint32_t{off < nearest};
  }
}
VARVE_TARGET_AVX2 void count_near_avx2(float value, std::span<const float> values, std::span<uint32_t> counts) {
  count_near_body(value, values, counts);
}

}  // namespace

void difference_forward_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out) {
  const PlainMath math(format);
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    std::vector<uint64_t> values(run.elements);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = math.to_integer(load_number(in.data() + at + i * format.bytes, format));
    }
    for (size_t pass = 0; pass < run.stride_count; ++pass) {
      for (size_t i = values.size(); i-- > run.strides[pass];) {
        values[i] = (values[i] - values[i - run.strides[pass]]) & math.mask;
      }
    }
    for (uint64_t value : values) {
      store_number(out.data() + at, {.bytes = format.bytes}, math.zigzag(value));
      at += format.bytes;
    }
  }
}

void difference_inverse_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out) {
  const PlainMath math(format);
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    std::vector<uint64_t> values(run.elements);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = math.unzigzag(load_number(in.data() + at + i * format.bytes, {.bytes = format.bytes}));
    }
    for (size_t pass = run.stride_count; pass-- > 0;) {
      for (size_t i = run.strides[pass]; i < values.size(); ++i) {
        values[i] = (values[i] + values[i - run.strides[pass]]) & math.mask;
      }
    }
    for (uint64_t value : values) {
      store_number(out.data() + at, format, math.from_integer(value));
      at += format.bytes;
    }
  }
}

void difference_forward(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return difference_forward_plain(format, runs, in, out);
  for_each_run<Way::forward>(format, runs, in, out);
}

void difference_forward_piece(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, size_t begin,
                              MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) {
    ByteVector all(in.size());
    difference_forward_plain(format, runs, in, all);
    std::copy_n(all.begin() + static_cast<ptrdiff_t>(begin), out.size(), out.begin());
    return;
  }
  const RunKernel kernel = pick<Way::piece>(format);
  const size_t end = begin + out.size();
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    const size_t from = std::max(at, begin), to = std::min<size_t>(at + run.elements * format.bytes, end);
    if (from < to) {
      kernel(run, {.in = in.data() + at,
                   .out = out.data() + (from - begin),
                   .begin = (from - at) / format.bytes,
                   .end = (to - at) / format.bytes});
    }
    at += run.elements * format.bytes;
  }
}

void count_matches(ByteSpan bytes, std::span<const size_t> positions, std::span<uint32_t> matches) {
  if (machine_has_avx2()) return count_matches_avx2(bytes.data(), positions, matches);
  count_matches_body(bytes.data(), positions, matches);
}

void count_near(float value, std::span<const float> values, std::span<uint32_t> counts) {
  if (machine_has_avx2()) return count_near_avx2(value, values, counts);
  count_near_body(value, values, counts);
}

void difference_inverse(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return difference_inverse_plain(format, runs, in, out);
  for_each_run<Way::inverse>(format, runs, in, out);
}

namespace {

/// Bytes of both vectors in turns: the lower halves of their parts of 16 bytes to `even`, the upper ones to `odd`.
template <class Vector, size_t... kIndex>
VARVE_KERNEL_BODY void interleave(Vector& even, Vector& odd, std::index_sequence<kIndex...>) {
  constexpr size_t bytes = sizeof...(kIndex);
  const Vector lower = __builtin_shufflevector(even, odd, (kIndex / 16 * 16 + kIndex % 16 / 2 + kIndex % 2 * bytes)...);
  odd = __builtin_shufflevector(even, odd, (kIndex / 16 * 16 + 8 + kIndex % 16 / 2 + kIndex % 2 * bytes)...);
  even = lower;
}

/// A transposition of kBytes elements of kBytes bytes by vectors of kVector bytes, which do the same to each of their
/// parts of 16 bytes. A step interleaves vectors whose numbers differ in one bit: that bit becomes the lowest of a
/// byte's place in its vector, and the highest of that place takes its place in the vector's number. So, with e3 e2 e1
/// e0 for the number of an element and b2 b1 b0 for that of its byte, elements of 8 bytes begin as vector [e3 e2 e1],
/// place [e0 b2 b1 b0], and the steps on bits 2, 1, 0 and 2 make that [e0 e2 e1] [b2 b1 b0 e3], then [e0 b2 e1] [b1 b0
/// e3 e2], then [e0 b2 b1] [b0 e3 e2 e1], and [b0 b2 b1] [e3 e2 e1 e0]: planes.
template <size_t kBytes, size_t kVector>
struct Transposition {
  using Vector [[gnu::vector_size(kVector)]] = uint8_t;
  static constexpr size_t kBits = kBytes == 2 ? 1 : kBytes == 4 ? 2 : 3;
  static_assert(kBytes == size_t{1} << kBits);
  Vector vectors[kBytes];

  template <size_t kBit>
  VARVE_KERNEL_BODY void step() {
    constexpr auto all = std::make_index_sequence<kVector>();
    for (size_t i = 0; i < kBytes; ++i) {
      if ((i >> kBit & 1) == 0) interleave(vectors[i], vectors[i | size_t{1} << kBit], all);
    }
  }
  /// The plane that a vector is after all steps.
  static constexpr size_t plane_of(size_t vector) { return kBytes == 8 ? (vector << 1 & 7) | vector >> 2 : vector; }
  VARVE_KERNEL_BODY void to_planes() {
    step<kBits - 1>();
    step<(2 * kBits - 2) % kBits>();
    step<(3 * kBits - 3) % kBits>();
    step<(4 * kBits - 4) % kBits>();
  }
  VARVE_KERNEL_BODY void to_elements() {
    step<kBits - 1>();
    if constexpr (kBits > 1) step<kBits - 2>();
    if constexpr (kBits > 2) step<kBits - 3>();
  }
};

/// Elements as wide as a register.
template <class T, size_t kVector>
VARVE_KERNEL_BODY void shuffle_words(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  using Block = Transposition<sizeof(T), kVector>;
  size_t done = 0;
  for (; done + kVector <= count; done += kVector) {
    Block block;
    for (size_t i = 0; i < sizeof(T); ++i) {
      for (size_t part = 0; part < kVector; part += 16) {
        std::memcpy(reinterpret_cast<std::byte*>(&block.vectors[i]) + part, in + (done + part) * sizeof(T) + i * 16,
                    16);
      }
    }
    block.to_planes();
    for (size_t i = 0; i < sizeof(T); ++i)
      std::memcpy(out + Block::plane_of(i) * count + done, &block.vectors[i], kVector);
  }
  for (; done < count; ++done) {
    for (size_t plane = 0; plane < sizeof(T); ++plane) out[plane * count + done] = in[done * sizeof(T) + plane];
  }
}

template <class T, size_t kVector>
VARVE_KERNEL_BODY void unshuffle_words(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  using Block = Transposition<sizeof(T), kVector>;
  size_t done = 0;
  for (; done + kVector <= count; done += kVector) {
    Block block;
    for (size_t i = 0; i < sizeof(T); ++i) std::memcpy(&block.vectors[i], in + i * count + done, kVector);
    block.to_elements();
    for (size_t i = 0; i < sizeof(T); ++i) {
      for (size_t part = 0; part < kVector; part += 16) {
        std::memcpy(out + (done + part) * sizeof(T) + i * 16,
                    reinterpret_cast<const std::byte*>(&block.vectors[i]) + part, 16);
      }
    }
  }
  for (; done < count; ++done) {
    for (size_t plane = 0; plane < sizeof(T); ++plane) out[done * sizeof(T) + plane] = in[plane * count + done];
  }
}

/// Any element size: tiles that stay in the first-level cache.
VARVE_KERNEL_BODY void shuffle_any(size_t element_bytes, const std::byte* __restrict in, std::byte* __restrict out,
                                   size_t count, bool forward) {
  const size_t tile_count = std::clamp<size_t>(8192 / element_bytes, 16, 512);
  for (size_t start = 0; start < count; start += tile_count) {
    const size_t end = std::min(start + tile_count, count);
    for (size_t plane = 0; plane < element_bytes; ++plane) {
      if (forward) {
        for (size_t i = start; i < end; ++i) out[plane * count + i] = in[i * element_bytes + plane];
      } else {
        for (size_t i = start; i < end; ++i) out[i * element_bytes + plane] = in[plane * count + i];
      }
    }
  }
}

template <size_t kVector>
VARVE_KERNEL_BODY void shuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) {
  switch (element_bytes) {
    case 2: return shuffle_words<uint16_t, kVector>(in, out, count);
    case 4: return shuffle_words<uint32_t, kVector>(in, out, count);
    case 8: return shuffle_words<uint64_t, kVector>(in, out, count);
    default: return shuffle_any(element_bytes, in, out, count, true);
  }
}
template <size_t kVector>
VARVE_KERNEL_BODY void unshuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) {
  switch (element_bytes) {
    case 2: return unshuffle_words<uint16_t, kVector>(in, out, count);
    case 4: return unshuffle_words<uint32_t, kVector>(in, out, count);
    case 8: return unshuffle_words<uint64_t, kVector>(in, out, count);
    default: return shuffle_any(element_bytes, in, out, count, false);
  }
}

/// Transposes the 8 × 8 bits of a word: bit c of byte r goes to bit r of byte c. Hacker's Delight, 7-3.
VARVE_KERNEL_BODY uint64_t transpose_bits(uint64_t x) {
  uint64_t swap = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
  x ^= swap ^ (swap << 7);
  swap = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
  x ^= swap ^ (swap << 14);
  swap = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
  return x ^ swap ^ (swap << 28);
}

/// A byte plane of 8 * `groups` elements, already gathered, to its eight bit planes and back.
VARVE_KERNEL_BODY void plane_to_bits(const std::byte* __restrict plane, std::byte* __restrict out, size_t groups) {
  constexpr size_t tile_groups = 256;
  uint64_t words[tile_groups];
  for (size_t start = 0; start < groups; start += tile_groups) {
    const size_t length = std::min(tile_groups, groups - start);
    for (size_t i = 0; i < length; ++i) words[i] = transpose_bits(load<uint64_t>(plane, start + i));
    for (size_t bit = 0; bit < 8; ++bit) {
      std::byte* __restrict to = out + bit * groups + start;
      for (size_t i = 0; i < length; ++i) to[i] = static_cast<std::byte>(words[i] >> (8 * bit));
    }
  }
}
VARVE_KERNEL_BODY void bits_to_plane(const std::byte* __restrict in, std::byte* __restrict plane, size_t groups) {
  for (size_t i = 0; i < groups; ++i) {
    uint64_t word = 0;
    for (size_t bit = 0; bit < 8; ++bit) word |= static_cast<uint64_t>(in[bit * groups + i]) << (8 * bit);
    word = transpose_bits(word);
    std::memcpy(plane + i * 8, &word, 8);
  }
}

template <size_t kVector>
VARVE_KERNEL_BODY void bit_shuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups,
                                        std::byte* planes) {
  shuffle_body<kVector>(element_bytes, in, planes, groups * 8);
  for (size_t j = 0; j < element_bytes; ++j) plane_to_bits(planes + j * groups * 8, out + j * groups * 8, groups);
}
template <size_t kVector>
VARVE_KERNEL_BODY void bit_unshuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups,
                                          std::byte* planes) {
  for (size_t j = 0; j < element_bytes; ++j) bits_to_plane(in + j * groups * 8, planes + j * groups * 8, groups);
  unshuffle_body<kVector>(element_bytes, planes, out, groups * 8);
}

#define VARVE_SHUFFLE_VERSIONS(name)                                                                            \
  void name##_baseline(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) {               \
    name##_body<16>(element_bytes, in, out, count);                                                             \
  }                                                                                                             \
  VARVE_TARGET_AVX2 void name##_avx2(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) { \
    name##_body<32>(element_bytes, in, out, count);                                                             \
  }
VARVE_SHUFFLE_VERSIONS(shuffle)
VARVE_SHUFFLE_VERSIONS(unshuffle)
#undef VARVE_SHUFFLE_VERSIONS

#define VARVE_BIT_SHUFFLE_VERSIONS(name)                                                                              \
  void name##_baseline(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups, std::byte* planes) { \
    name##_body<16>(element_bytes, in, out, groups, planes);                                                          \
  }                                                                                                                   \
  VARVE_TARGET_AVX2 void name##_avx2(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups,        \
                                     std::byte* planes) {                                                             \
    name##_body<32>(element_bytes, in, out, groups, planes);                                                          \
  }
VARVE_BIT_SHUFFLE_VERSIONS(bit_shuffle)
VARVE_BIT_SHUFFLE_VERSIONS(bit_unshuffle)
#undef VARVE_BIT_SHUFFLE_VERSIONS

void copy_tail(ByteSpan in, MutableByteSpan out, size_t done) {
  std::copy(in.begin() + static_cast<ptrdiff_t>(done), in.end(), out.begin() + static_cast<ptrdiff_t>(done));
}

template <class Kernel>
void transpose_bytes(Kernel kernel, size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  const size_t count = in.size() / element_bytes;
  if (element_bytes == 1 || count < 2) return copy_tail(in, out, 0);
  kernel(element_bytes, in.data(), out.data(), count);
  copy_tail(in, out, count * element_bytes);
}

template <class Kernel>
void transpose_to_bits(Kernel kernel, size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  thread_local ByteVector planes;  // kept: first touch of fresh memory costs more than the transposition
  const size_t groups = in.size() / element_bytes / 8;
  const size_t done = groups * 8 * element_bytes;
  if (groups > 0) {
    if (planes.size() < done) planes.resize(done);
    kernel(element_bytes, in.data(), out.data(), groups, planes.data());
    if (planes.size() > 8_MiB) planes = {};
  }
  copy_tail(in, out, done);
}

}  // namespace

void shuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return shuffle_plain(element_bytes, in, out);
  transpose_bytes(machine_has_avx2() ? shuffle_avx2 : shuffle_baseline, element_bytes, in, out);
}
void unshuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return unshuffle_plain(element_bytes, in, out);
  transpose_bytes(machine_has_avx2() ? unshuffle_avx2 : unshuffle_baseline, element_bytes, in, out);
}
void bit_shuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return bit_shuffle_plain(element_bytes, in, out);
  transpose_to_bits(machine_has_avx2() ? bit_shuffle_avx2 : bit_shuffle_baseline, element_bytes, in, out);
}
void bit_unshuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return bit_unshuffle_plain(element_bytes, in, out);
  transpose_to_bits(machine_has_avx2() ? bit_unshuffle_avx2 : bit_unshuffle_baseline, element_bytes, in, out);
}

void shuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  const size_t count = in.size() / element_bytes;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < element_bytes; ++j) out[j * count + i] = in[i * element_bytes + j];
  }
  copy_tail(in, out, count * element_bytes);
}
void unshuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  const size_t count = in.size() / element_bytes;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < element_bytes; ++j) out[i * element_bytes + j] = in[j * count + i];
  }
  copy_tail(in, out, count * element_bytes);
}

namespace {
template <class Visit>
size_t for_each_bit(size_t element_bytes, size_t bytes, Visit visit) {
  const size_t groups = bytes / element_bytes / 8;
  for (size_t element = 0; element < groups * 8; ++element) {
    for (size_t bit = 0; bit < element_bytes * 8; ++bit) {
      visit(element * element_bytes + bit / 8, bit % 8, bit * groups + element / 8, element % 8);
    }
  }
  return groups * 8 * element_bytes;
}
std::byte bit_at(std::byte from, size_t from_bit, size_t to_bit) { return (from >> from_bit & std::byte{1}) << to_bit; }
}  // namespace

void bit_shuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  copy_tail(in, out,
            for_each_bit(element_bytes, in.size(), [&](size_t byte, size_t bit, size_t plane_byte, size_t plane_bit) {
              out[plane_byte] |= bit_at(in[byte], bit, plane_bit);
            }));
}
void bit_unshuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  copy_tail(in, out,
            for_each_bit(element_bytes, in.size(), [&](size_t byte, size_t bit, size_t plane_byte, size_t plane_bit) {
              out[byte] |= bit_at(in[plane_byte], plane_bit, bit);
            }));
}

}  // namespace varve::kernels
