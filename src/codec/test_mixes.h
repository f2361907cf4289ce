#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "codec/kernels.h"
#include "codec/test_deflate.h"
#include "codec/test_packs.h"

#ifdef VARVE_TEST_WITH_ZLIB
#include <zlib.h>
#endif

// Packs of contents of very different kinds, one behind the other, as files of many programs bring them together.

namespace varve::test {

/// Makes the same packs of the same seed.
class MixMaker {
 public:
  explicit MixMaker(uint64_t seed) : random_(seed) {}

  Random& random() { return random_; }
  uint64_t below(uint64_t end) { return end == 0 ? 0 : random_() % end; }
  bool one_in(uint64_t count) { return below(count) == 0; }
  /// From 0 to `most`, and often of its magnitude; else as likely from 100 to 1000 as from 1000 to 10,000.
  uint64_t any_size(uint64_t most) {
    if (one_in(2)) return most - below(most * 7 / 8 + 1);
    const double bits = std::log2(static_cast<double>(most + 1)) * static_cast<double>(below(1001)) / 1000;
    return std::min(most, static_cast<uint64_t>(std::exp2(bits)) - 1 + below(2));
  }

  /// A pack as the pipeline may make it, of `bytes_max` at most.
  Pack pack(uint64_t bytes_max) {
    switch (below(10)) {
      case 0: return tiny_pack();
      case 1: return parts_pack(bytes_max);
      case 2:
      case 3: return typed_pack(number_type(), bytes_max);
      case 4: return typed_pack(element_types()[below(element_types().size())], bytes_max);
      case 5:
      case 6: return streams_pack(bytes_max);
      default: return bytes_pack(bytes_max);
    }
  }

  /// Bytes of which nothing is known.
  Pack bytes_pack(uint64_t bytes_max) {
    Pack pack{.shape = {{}, {}}, .raw = mix(any_size(bytes_max))};
    pack.shape.runs = one_in(3) ? runs_of(pack.raw.size()) : std::vector<Run>{run_of(pack.raw.size())};
    return pack;
  }

  /// What programs deflated, of `content_bytes_max` each at most, with little between.
  Pack streams_pack(uint64_t content_bytes_max) {
    ByteVector raw;
    const bool alike = one_in(2);  // as chunks of one array are, or as members of a file
    const DeflateSettings settings = any_settings();
    for (uint64_t left = 1 + below(6); left > 0; --left) {
      append(raw, alike ? stream(content_bytes_max, settings) : stream(content_bytes_max, any_settings()));
      if (one_in(3)) append(raw, one_in(4) ? mix(any_size(raw.size())) : random_bytes(below(300), random_));
    }
    if (raw.size() > kPackBytesMax || one_in(3))
      raw.resize(std::min<uint64_t>(kPackBytesMax, raw.size() - below(raw.size()) / 2));
    if (one_in(6)) raw.erase(raw.begin(), raw.begin() + static_cast<ptrdiff_t>(below(raw.size())));
    const PackShape shape{{}, {run_of(raw.size())}};
    return {.shape = shape, .raw = std::move(raw)};
  }

  Pack typed_pack(const ElementType& type, uint64_t bytes_max) {
    const uint64_t elements = any_size(bytes_max) / type.bytes;
    return {.shape = {type, runs_of(elements)}, .raw = content_of(type, elements)};
  }

  /// 0 to 20 bytes, or elements.
  Pack tiny_pack() {
    const ElementType type = one_in(2) ? ElementType{} : element_types()[below(element_types().size())];
    const uint64_t elements = below(21);
    return {.shape = {type, elements == 0 ? std::vector<Run>() : runs_of(elements)}, .raw = content_of(type, elements)};
  }

  /// Variables that were laid together, as they predict each other or do not.
  Pack parts_pack(uint64_t bytes_max) {
    ElementType type{ElementKind::floating, one_in(2) ? ByteOrder::big : ByteOrder::little, one_in(2) ? 4U : 8U};
    if (one_in(8)) type = element_types()[below(element_types().size())];
    Pack pack{.shape = {.type = type, .runs = {}}, .raw = {}};
    const uint64_t most = any_size(bytes_max) / type.bytes, usual = 1 + below(most / 3 + 1);
    std::vector<uint64_t> begins;
    for (uint64_t left = most; left > 0;) {
      PackPart part{.elements = std::min(left, one_in(4) ? 1 + below(most) : usual), .reference = {}};
      std::vector<PackPart>& parts = pack.shape.parts;
      ByteVector content;
      const uint64_t before = parts.empty() ? 0 : below(parts.size());
      if (!parts.empty() && parts[before].elements == part.elements && !one_in(5)) {
        part.reference = static_cast<uint32_t>(before);
        content = like(type, ByteSpan(pack.raw).subspan(begins[before], part.elements * type.bytes));
      } else {
        content = content_of(type, part.elements);
      }
      begins.push_back(pack.raw.size());
      append(pack.raw, content);
      const std::vector<Run> runs = runs_of(part.elements);
      pack.shape.runs.insert(pack.shape.runs.end(), runs.begin(), runs.end());
      parts.push_back(part);
      left -= part.elements;
    }
    return pack;
  }

  /// What a pack holds that is as large as it may be, and of one kind: a program's whole memory, or one field.
  Pack large_pack(uint64_t bytes) {
    if (one_in(2)) {
      const ElementType type{ElementKind::floating, ByteOrder::little, 8};
      return {.shape = {type, runs_of(bytes / 8)}, .raw = content_of(type, bytes / 8)};
    }
    return {.shape = {{}, {run_of(bytes)}}, .raw = mix(bytes)};
  }

  /// Pieces of all kinds, one behind the other, some of them again.
  ByteVector mix(uint64_t bytes) {
    ByteVector raw;
    const uint64_t usual = 1 + bytes / (1 + below(12));
    while (raw.size() < bytes) {
      if (!raw.empty() && one_in(5)) {  // from near, or from far away
        const uint64_t from = below(raw.size()), count = 1 + any_size(raw.size() - from - 1);
        const ByteVector again(raw.begin() + static_cast<ptrdiff_t>(from),
                               raw.begin() + static_cast<ptrdiff_t>(from + count));
        append(raw, again);
      } else {
        append(raw, piece(one_in(2) ? usual : any_size(2 * usual)));
      }
    }
    raw.resize(bytes);
    return raw;
  }

 private:
  const ElementType& number_type() {
    static const std::vector<ElementType> types = [] {
      std::vector<ElementType> numbers;
      for (const ElementType& type : element_types()) {
        if (type.numeric() && type.bytes <= 8) numbers.push_back(type);
      }
      return numbers;
    }();
    return types[below(types.size())];
  }

  /// Of one kind, about so long.
  ByteVector piece(uint64_t bytes) {
    switch (below(12)) {
      case 0:
      case 1: {
        const ElementType& type = number_type();
        return numbers(type, bytes / type.bytes + 1);
      }
      case 2: return structs(bytes);
      case 3: return fortran(bytes);
      case 4: return table_in_text(bytes);
      case 5: return prose(bytes);
      case 6: return random_bytes(bytes, random_);
      case 7: return ByteVector(bytes);
      case 8: return pattern(bytes);
      case 9: return squeezed(bytes);
      default: return stream(4 * bytes, any_settings());
    }
  }

  /// What elements of a type are like, or what they are not.
  ByteVector content_of(const ElementType& type, uint64_t elements) {
    if (!type.numeric() || type.bytes > 8 || one_in(10)) return mix(elements * type.bytes);
    ByteVector raw;
    while (raw.size() < elements * type.bytes) append(raw, numbers(type, 1 + any_size(elements)));
    raw.resize(elements * type.bytes);
    return raw;
  }

  ByteVector numbers(const ElementType& type, uint64_t elements) {
    ByteVector raw;
    switch (below(7)) {
      case 0: return random_bytes(elements * type.bytes, random_);
      case 1: raw.assign(elements * type.bytes, static_cast<std::byte>(below(3))); return raw;
      case 2: return special(type, elements);
      case 3: return grid(type, elements);
      case 4: {  // few values
        const ByteVector values = smooth_bytes(type, 1 + below(300), random_);
        for (uint64_t i = 0; i < elements; ++i)
          append(raw, ByteSpan(values).subspan(below(values.size() / type.bytes) * type.bytes, type.bytes));
        return raw;
      }
      default: return smooth_bytes(type, elements, random_);
    }
  }

  /// NaN with any payload, infinities, zeros of both signs, denormals, the largest.
  ByteVector special(const ElementType& type, uint64_t elements) {
    constexpr double values[] = {std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 0.0,
                                 -0.0,
                                 5e-324,
                                 3e-310,
                                 1e-40,
                                 3e38,
                                 -1.7e308};
    ByteVector raw = smooth_bytes(type, elements, random_);
    if (type.kind != ElementKind::floating || type.bytes < 4) return raw;
    const uint64_t rarely = 1 + below(30);
    for (uint64_t i = 0; i < elements; ++i) {
      if (!one_in(rarely)) continue;
      std::byte* const at = raw.data() + i * type.bytes;
      if (one_in(3)) {
        std::ranges::copy(random_bytes(type.bytes, random_), at);
        at[type.order == ByteOrder::big ? 0 : type.bytes - 1] = std::byte{0x7f};
        at[type.order == ByteOrder::big ? 1 : type.bytes - 2] |= std::byte{0xf0};
      } else {
        put_number(at, type, values[below(std::size(values))]);
      }
    }
    return raw;
  }

  /// Rows, and planes of rows, of some length.
  ByteVector grid(const ElementType& type, uint64_t elements) {
    ByteVector raw(elements * type.bytes);
    const uint64_t nx = 2 + below(300), ny = 2 + below(60);
    const double x = static_cast<double>(1 + below(100)) / 500, y = x * 0.7, z = x * 1.3;
    for (uint64_t i = 0; i < elements; ++i) {
      const auto at = [&](uint64_t index) { return static_cast<double>(index); };
      put_number(raw.data() + i * type.bytes, type,
                 std::sin(x * at(i % nx)) + std::cos(y * at(i / nx % ny)) + std::sin(z * at(i / nx / ny)));
    }
    return raw;
  }

  /// As `reference`, element by element, is a multiple of it, with some noise.
  ByteVector like(const ElementType& type, ByteSpan reference) {
    ByteVector raw(reference.begin(), reference.end());
    if (type.kind != ElementKind::floating || type.bytes < 4 || type.bytes > 8) return raw;
    const double times = static_cast<double>(1 + below(1000)) / 300;
    for (uint64_t at = 0; at + type.bytes <= raw.size(); at += type.bytes) {
      uint64_t bits = 0;
      for (uint32_t i = 0; i < type.bytes; ++i) {
        const std::byte byte = raw[at + (type.order == ByteOrder::big ? type.bytes - 1 - i : i)];
        bits |= static_cast<uint64_t>(byte) << (8 * i);
      }
      const double value = type.bytes == 8 ? std::bit_cast<double>(bits)
                                           : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      if (std::abs(value) < 1e30 && !one_in(50)) put_number(raw.data() + at, type, value * times);
    }
    return raw;
  }

  /// Records of fields that have their own kinds and magnitudes.
  ByteVector structs(uint64_t bytes) {
    std::vector<ElementType> fields;
    std::vector<double> magnitudes;
    uint32_t record_bytes = 0;
    for (uint64_t left = 2 + below(6); left > 0; --left) {
      fields.push_back(number_type());
      magnitudes.push_back(std::pow(10.0, static_cast<double>(below(9)) - 4));
      record_bytes += fields.back().bytes;
    }
    const uint64_t padding = below(4);
    ByteVector raw;
    for (uint64_t record = 0; raw.size() < bytes; ++record) {
      for (size_t i = 0; i < fields.size(); ++i) {
        const size_t at = raw.size();
        raw.resize(at + fields[i].bytes);
        const double noise = static_cast<double>(below(1000)) / 1e5;
        put_number(raw.data() + at, fields[i],
                   magnitudes[i] * (std::sin(static_cast<double>(record) / 50 + static_cast<double>(i)) + noise));
      }
      raw.resize(raw.size() + padding);
    }
    return raw;
  }

  /// Unformatted records of Fortran: the bytes' count, the bytes, the count again.
  ByteVector fortran(uint64_t bytes) {
    ByteVector raw;
    const uint64_t usual = 1 + bytes / (1 + below(20));
    while (raw.size() < bytes) {
      const ElementType& type = number_type();
      const ByteVector record = numbers(type, usual / type.bytes + 1);
      ByteWriter writer(raw);
      writer.le32(static_cast<uint32_t>(record.size()));
      writer.bytes(record);
      writer.le32(static_cast<uint32_t>(record.size()));
    }
    return raw;
  }

  ByteVector table_in_text(uint64_t bytes) {
    std::string text;
    const uint64_t columns = 1 + below(one_in(10) ? 70 : 9), form = below(4);
    const char* const end = one_in(4) ? " \n" : one_in(4) ? "\r\n" : "\n";
    for (uint64_t line = 0; text.size() < bytes; ++line) {
      if (one_in(200)) text += one_in(2) ? "# a remark\n" : "\n";
      for (uint64_t column = 0; column < columns; ++column) {
        const double value = std::sin(static_cast<double>(line * columns + column) / 30) * 100;
        switch (form) {
          case 0: text += fmt::format("{:12.6f}", value); break;
          case 1: text += fmt::format(" {:.15e}", value); break;
          case 2: text += fmt::format("{}\t", line * columns + column); break;
          default: text += fmt::format(" {:g}", value);
        }
      }
      text += end;
    }
    const ByteSpan all = as_bytes(text);
    return {all.begin(), all.end()};
  }

  ByteVector prose(uint64_t bytes) {
    std::string text;
    constexpr std::string_view letters = "etaoin shrdlu\n";
    while (text.size() < bytes) text += letters[below(letters.size())];
    const ByteSpan all = as_bytes(text);
    return {all.begin(), all.end()};
  }

  ByteVector pattern(uint64_t bytes) {
    const ByteVector period = random_bytes(1 + below(one_in(2) ? 16 : 5000), random_);
    ByteVector raw;
    while (raw.size() < bytes) append(raw, period);
    return raw;
  }

  /// What coders leave, which no other shrinks, with the little that they write around it.
  ByteVector squeezed(uint64_t bytes) {
    constexpr const char* coders[] = {"lzma:1", "zstd", "gzip:1"};
    const ByteVector content = one_in(2) ? prose(2 * bytes) : random_bytes(bytes, random_);
    ByteVector raw = {std::byte{'B'}, std::byte{'Z'}, std::byte{'h'}, std::byte{'9'}};
    append(raw, encode_chain(*CodecChain::parse(coders[below(3)]), content, {{}, {run_of(content.size())}})->body);
    return raw;
  }

  ByteVector deflated_content(uint64_t bytes_max) {
    const uint64_t bytes = any_size(one_in(4) ? std::min(4 * bytes_max, 8_MiB) : bytes_max);
    switch (below(8)) {
      case 0: return prose(bytes);
      case 1: return one_in(2) ? ByteVector(bytes) : pattern(bytes);
      case 2: return structs(bytes);
      case 3: return table_in_text(bytes);
      case 4: return random_bytes(bytes / 4, random_);
      default: break;
    }
    const ElementType& type = number_type();
    ByteVector content = numbers(type, bytes / type.bytes + 1);
    if (one_in(4)) content.resize(content.size() + 1);
    if (one_in(2)) return content;
    ByteVector planes(content.size());  // as HDF5's shuffle
    kernels::shuffle(one_in(5) ? 1 + below(16) : type.bytes, content, planes);
    return planes;
  }

  DeflateSettings any_settings() {
    return {static_cast<uint8_t>(one_in(2) ? 6 : 1 + below(9)), static_cast<uint8_t>(one_in(2) ? 8 : 1 + below(9))};
  }

  /// As programs write them around chunks and members.
  ByteVector stream(uint64_t content_bytes_max, DeflateSettings settings) {
    const ByteVector content = deflated_content(content_bytes_max);
    ByteVector raw;
    switch (below(6)) {
      case 0:
      case 5:
        raw = {std::byte{0x78}, std::byte{0x9c}};
        append(raw, deflated(content, settings));
        append(raw, random_bytes(4, random_));
        break;
      case 1:
        append(raw, as_bytes(std::string_view("\x1f\x8b\x08\x08....\0\x03name\0", 15)));
        append(raw, deflated(content, settings));
        append(raw, random_bytes(8, random_));
        break;
      case 2:
        raw.resize(30);
        std::ranges::copy(as_bytes(std::string_view("PK\3\4\x14\0\0\0\x08\0", 10)), raw.begin());
        raw[26] = std::byte{5};
        append(raw, as_bytes("h.npy"));
        append(raw, deflated(content, settings));
        break;
      case 3: raw = deflated(content, settings); break;
      default: raw = as_others(content, settings);
    }
    return raw;
  }

  /// By another library, or with settings that are not made again.
  ByteVector as_others(ByteSpan content, [[maybe_unused]] DeflateSettings settings) {
#ifdef VARVE_TEST_WITH_ZLIB
    if (!one_in(3)) {
      z_stream zlib{};
      constexpr int strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED};
      const int window = 9 + static_cast<int>(below(7)), level = one_in(5) ? 0 : settings.level;
      if (deflateInit2(&zlib, level, Z_DEFLATED, one_in(2) ? window : -std::max(window, 9), settings.memory_level,
                       strategies[below(5)]) == Z_OK) {
        ByteVector raw(deflateBound(&zlib, content.size()) + 1000);
        zlib.next_out = reinterpret_cast<Bytef*>(raw.data());
        zlib.avail_out = static_cast<uInt>(raw.size());
        ByteVector in(content.begin(), content.end());
        zlib.next_in = reinterpret_cast<Bytef*>(in.data());
        zlib.avail_in = static_cast<uInt>(one_in(2) ? in.size() : in.size() / 2);
        constexpr int flushes[] = {Z_NO_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_PARTIAL_FLUSH};
        if (zlib.avail_in < in.size()) {
          deflate(&zlib, flushes[below(4)]);
          zlib.avail_in = static_cast<uInt>(in.data() + in.size() - reinterpret_cast<std::byte*>(zlib.next_in));
        }
        deflate(&zlib, Z_FINISH);
        raw.resize(zlib.total_out);
        deflateEnd(&zlib);
        return raw;
      }
    }
#endif
    ByteVector params, raw;
    const PackShape shape{{}, {run_of(content.size())}};
    (void)find_codec(CodecNumber::gzip).value()->encode(content, shape, 1 + static_cast<int>(below(12)), params, raw);
    return raw;
  }

  /// Runs that cover so many elements: one, equal arrays, arrays of any dimensions, parts of larger ones, single ones.
  std::vector<Run> runs_of(uint64_t elements) {
    if (one_in(3)) return {run_of(elements)};
    std::vector<Run> runs;
    const uint64_t usual = one_in(4) ? 1 + below(100) : 1 + any_size(elements);
    const uint64_t usual_dimensions = below(5);
    Run run;
    for (uint64_t left = elements; left > 0; left -= run.elements) {
      if (!runs.empty() && runs.back().elements <= left && !one_in(4)) {
        run = runs.back();
      } else {
        const uint64_t wanted = std::min(left, runs.size() > 2000 ? left : one_in(3) ? 1 + any_size(left) : usual);
        run = array_run(wanted, one_in(3) ? below(5) : usual_dimensions);
      }
      runs.push_back(run);
    }
    return runs;
  }

  /// At most `elements` long.
  Run array_run(uint64_t elements, uint64_t dimensions) {
    Run run{.elements = 1, .dims = {}};
    for (uint64_t i = 0; i < dimensions; ++i) {
      const uint64_t left = elements / run.elements;
      if (left < 2) break;
      const auto edge = static_cast<uint64_t>(
          std::pow(static_cast<double>(left), 1 / static_cast<double>(dimensions - i)) * (one_in(3) ? 0.6 : 1));
      run.dims.push_back(std::clamp<uint64_t>(edge, 2, left));
      run.elements *= run.dims.back();
    }
    run.whole = !run.dims.empty();
    if (run.dims.empty() || one_in(3)) {  // a part, of an array that may be larger than any pack
      run.whole = false;
      run.elements = elements;
      if (!run.dims.empty() && one_in(3)) {
        constexpr uint64_t large[] = {kPackBytesMax, kPackBytesMax + 1, 140'000'000, uint64_t{1} << 60};
        run.dims[below(run.dims.size())] = one_in(2) ? 2 + below(100) : large[below(4)];
      }
      uint64_t product = 1;
      for (const uint64_t dim : run.dims) product = dim > elements ? elements + 1 : product * dim;
      run.whole = !run.dims.empty() && product == elements;
    }
    return run;
  }

  Random random_;
};

}  // namespace varve::test
