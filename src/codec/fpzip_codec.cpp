#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "codec/default_arithmetic.h"
#include "codec/numbers.h"
#include "codec/range_coder.h"
#include "codec/registry.h"

namespace varve {
namespace {

// P. Lindstrom and M. Isenburg, "Fast and Efficient Compression of Floating-Point Data", IEEE TVCG 12 (2006). Each run
// is what the fpzip library writes for one field at full precision without its header (FORMAT.md, "fpzip"). It is our
// own code because the library's decoder trusts its input, and because its predictions from NaNs depend on how it was
// compiled.

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

/// The bits of a float as an integer in value order.
template <class T>
BitsOf<T> ordered(T value) {
  using U = BitsOf<T>;
  constexpr U sign = U{1} << (8 * sizeof(T) - 1);
  const U bits = std::bit_cast<U>(value);
  return (bits & sign) != 0 ? ~bits : bits ^ sign;
}
template <class T>
T unordered(BitsOf<T> value) {
  using U = BitsOf<T>;
  constexpr U sign = U{1} << (8 * sizeof(T) - 1);
  return std::bit_cast<T>((value & sign) != 0 ? static_cast<U>(value ^ sign) : static_cast<U>(~value));
}

/// The symbol says the sign and the bit length of the difference from the prediction; kZeroSymbol says that there is
/// none.
template <class T>
constexpr uint32_t kZeroSymbol = 8 * sizeof(T);
template <class T>
constexpr uint32_t kSymbolCount = 2 * kZeroSymbol<T> + 1;

template <class T>
void encode_value(RangeEncoder& coder, QuasiStaticModel& model, T actual, T predicted) {
  const BitsOf<T> a = ordered(actual);
  const BitsOf<T> p = ordered(predicted);
  if (a == p) return coder.symbol(model, kZeroSymbol<T>);
  const BitsOf<T> distance = a > p ? a - p : p - a;
  const auto length = static_cast<unsigned>(std::bit_width(distance)) - 1;
  coder.symbol(model, a > p ? kZeroSymbol<T> + 1 + length : kZeroSymbol<T> - 1 - length);
  coder.bits(distance - (BitsOf<T>{1} << length), length);
}

template <class T>
T decode_value(RangeDecoder& coder, QuasiStaticModel& model, T predicted) {
  const uint32_t symbol = coder.symbol(model);
  if (symbol == kZeroSymbol<T>) return predicted;
  const bool above = symbol > kZeroSymbol<T>;
  const unsigned length = above ? symbol - kZeroSymbol<T> - 1 : kZeroSymbol<T> - 1 - symbol;
  const auto distance = static_cast<BitsOf<T>>((uint64_t{1} << length) + coder.bits(length));
  return unordered<T>(above ? ordered(predicted) + distance : ordered(predicted) - distance);
}

struct FieldSize {
  size_t nx, ny, nz;
};

/// Visits a field's values in order, each with the prediction from those before it: the value that would make its unit
/// cube linear, with zeros outside the field. `visit` returns the actual value, which must then stand in `values`.
template <class T, class Visit>
void predict_field(FieldSize size, T* values, Visit visit) {
  const std::vector<T> outside(size.nx, T{0});
  const auto row_at = [&](bool inside, size_t row) { return inside ? values + row * size.nx : outside.data(); };
  for (size_t z = 0; z < size.nz; ++z) {
    for (size_t y = 0; y < size.ny; ++y) {
      const size_t row = z * size.ny + y;
      const T* row010 = row_at(y > 0, row - 1);
      const T* row001 = row_at(z > 0, row - size.ny);
      const T* row011 = row_at(y > 0 && z > 0, row - size.ny - 1);
      T f100 = 0, f110 = 0, f101 = 0, f111 = 0;
      for (size_t x = 0; x < size.nx; ++x) {
        const T f010 = row010[x], f001 = row001[x], f011 = row011[x];
        // The order of the additions is the format's.
        T predicted = f100 - f011 + f010 - f101 + f001 - f110 + f111;
        if (std::isnan(predicted)) predicted = 0;
        f100 = visit(values + row * size.nx + x, predicted);
        f110 = f010;
        f101 = f001;
        f111 = f011;
      }
    }
  }
}

FieldSize field_size(const NumberRun& run) {
  if (!run.whole) return {run.elements, 1, 1};
  return {run.dim(0), run.dim(1), run.dim(2)};
}

template <class T>
T in_order(T value, bool big_endian) {
  if (!big_endian) return value;
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(__builtin_bswap32(std::bit_cast<uint32_t>(value)));
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

template <class T>
[[gnu::noinline]] void encode_runs(const std::vector<NumberRun>& runs, bool big_endian, ByteSpan in, ByteVector& out) {
  std::vector<T> values(in.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<T>(in_order(load_le<BitsOf<T>>(in.data() + i * sizeof(T)), big_endian));
  }
  RangeEncoder coder(out);
  T* at = values.data();
  for (const NumberRun& run : runs) {
    QuasiStaticModel model(kSymbolCount<T>);
    predict_field(field_size(run), at, [&](const T* actual, T predicted) {
      encode_value(coder, model, *actual, predicted);
      return *actual;
    });
    at += run.elements;
  }
  coder.finish();
}

template <class T>
[[gnu::noinline]] Status decode_runs(const std::vector<NumberRun>& runs, bool big_endian, ByteSpan in,
                                     MutableByteSpan out) {
  std::vector<T> values(out.size() / sizeof(T));
  RangeDecoder coder(in);
  T* at = values.data();
  for (const NumberRun& run : runs) {
    QuasiStaticModel model(kSymbolCount<T>);
    predict_field(field_size(run), at, [&](T* actual, T predicted) {
      *actual = decode_value(coder, model, predicted);
      return *actual;
    });
    if (coder.failed()) return Status::corrupt("fpzip: damaged data");
    at += run.elements;
  }
  if (!coder.at_end()) return Status::corrupt("fpzip: bytes are left after the last value");
  for (size_t i = 0; i < values.size(); ++i) {
    store_le(out.data() + i * sizeof(T), in_order(std::bit_cast<BitsOf<T>>(values[i]), big_endian));
  }
  return {};
}

class FpzipCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::fpzip; }
  std::string_view name() const override { return "fpzip"; }
  bool applies_to(const PackShape& shape) const override {
    return shape.type.kind == ElementKind::floating && (shape.type.bytes == 4 || shape.type.bytes == 8);
  }

  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("fpzip has no levels");
    const kernels::NumberFormat format = number_format(shape.type);
    const size_t whole_bytes = in.size() / format.bytes * format.bytes;
    const std::vector<NumberRun> runs = number_runs(shape, whole_bytes / format.bytes);
    ByteWriter writer(params);
    writer.u8(pack_number_format(format));
    write_runs(writer, runs);
    ByteWriter(out).bytes(in.subspan(whole_bytes));
    const DefaultArithmetic arithmetic;
    if (format.bytes == 4) {
      encode_runs<float>(runs, format.big_endian, in.first(whole_bytes), out);
    } else {
      encode_runs<double>(runs, format.big_endian, in.first(whole_bytes), out);
    }
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    ByteReader reader(params);
    VARVE_ASSIGN(const uint8_t code, reader.u8());
    VARVE_ASSIGN(const kernels::NumberFormat format, unpack_number_format(code));
    if (!format.floating || format.bytes < 4) return Status::corrupt("fpzip: unknown number format");
    const size_t tail_bytes = out.size() % format.bytes;
    const size_t whole_bytes = out.size() - tail_bytes;
    VARVE_ASSIGN(const std::vector<NumberRun> runs, read_runs(reader, whole_bytes / format.bytes));
    if (!reader.at_end()) return Status::corrupt("bytes are left after the parameters");
    if (in.size() < tail_bytes) return Status::corrupt("fpzip: damaged data");
    std::copy_n(in.begin(), tail_bytes, out.begin() + static_cast<ptrdiff_t>(whole_bytes));
    const DefaultArithmetic arithmetic;
    if (format.bytes == 4)
      return decode_runs<float>(runs, format.big_endian, in.subspan(tail_bytes), out.first(whole_bytes));
    return decode_runs<double>(runs, format.big_endian, in.subspan(tail_bytes), out.first(whole_bytes));
  }
};

}  // namespace

const Codec& fpzip_codec() {
  static const FpzipCodec codec;
  return codec;
}

}  // namespace varve
