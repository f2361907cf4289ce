#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "codec/across.h"
#include "codec/across_kernels.h"
#include "codec/kept_room.h"
#include "codec/numbers.h"
#include "codec/registry.h"

namespace varve {
namespace {

// Variables of one grid go with each other: the density of a species is nearly a constant times that of all matter.
// The numbers of a part are predicted by those of an earlier part of the pack, or as by `lorenzo`. FORMAT.md, "across".

enum class Prediction : uint8_t {
  own = 0,         ///< the differences along the dimensions
  quotient = 1,    ///< kernels::quotient_forward()
  difference = 2,  ///< the differences along the dimensions, of the differences from the reference
};

/// A prediction by itself may be decoded faster, and a reference that hardly helps is not worth that.
constexpr double kWorth = 0.98;
/// By how much a variable has to gain in a trial to be laid together with what predicts it: to read it alone takes
/// longer then.
constexpr double kWorthTogether = 0.95;
/// The same of all of them, by what coders make of the samples: longer stretches of one variable may have more in
/// common than a sample shows.
constexpr double kWorthInAll = 0.85;
constexpr uint64_t kPartsMax = 65'536;
/// Which prediction a long part gets, a piece in every so many says, which is as good as all of it.
constexpr size_t kPieceBytes = 4_KiB, kPiecesApart = 8, kLongPartBytes = 32_KiB;

/// A part, in elements of the pack.
struct Placed {
  uint64_t begin = 0;
  uint64_t elements = 0;
};

ByteSpan bytes_of(ByteSpan pack, const Placed& part, uint32_t bytes) {
  return pack.subspan(part.begin * bytes, part.elements * bytes);
}
MutableByteSpan bytes_of(MutableByteSpan pack, const Placed& part, uint32_t bytes) {
  return pack.subspan(part.begin * bytes, part.elements * bytes);
}

/// The runs of one part after the other.
class RunsOfParts {
 public:
  explicit RunsOfParts(const PackShape& shape) : shape_(shape) {}
  /// Of the next one. Behind the last run there are none.
  std::vector<NumberRun> next(uint64_t elements) {
    PackShape own{.type = shape_.type, .runs = {}};
    for (uint64_t left = elements; left > 0 && run_ < shape_.runs.size();) {
      const Run& run = shape_.runs[run_];
      const uint64_t taken = std::min(left, run.elements - used_);
      if (taken > 0) own.runs.push_back({taken, run.dims, run.whole && taken == run.elements});
      left -= taken;
      used_ += taken;
      if (used_ < run.elements) break;
      ++run_;
      used_ = 0;
    }
    return number_runs(own, elements);
  }

 private:
  const PackShape& shape_;
  size_t run_ = 0;
  uint64_t used_ = 0;  ///< elements of it
};

/// visit(begin, bytes) of what of a part, of so many bytes, its prediction is chosen by.
template <class Visit>
void for_each_piece(size_t part_bytes, const Visit& visit) {
  // Machines of the other byte order have no kernel for pieces.
  if (part_bytes < kLongPartBytes || std::endian::native == std::endian::big) return visit(size_t{0}, part_bytes);
  for (size_t begin = 0; begin < part_bytes; begin += kPiecesApart * kPieceBytes)
    visit(begin, std::min(kPieceBytes, part_bytes - begin));
}

class AcrossCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::across; }
  std::string_view name() const override { return "across"; }
  bool applies_to(const PackShape& shape) const override { return predicts_across(shape.type); }

  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("across has no levels");
    const kernels::NumberFormat format = number_format(shape.type);
    const size_t whole_bytes = in.size() / format.bytes * format.bytes;
    const std::vector<PackPart> parts = parts_of(shape, whole_bytes / format.bytes);
    ByteWriter writer(params);
    writer.u8(pack_number_format(format));
    writer.varint(parts.size());

    const size_t at = out.size();
    out.resize(at + in.size());
    const MutableByteSpan codes = MutableByteSpan(out).subspan(at);
    std::copy(in.begin() + static_cast<ptrdiff_t>(whole_bytes), in.end(),
              codes.begin() + static_cast<ptrdiff_t>(whole_bytes));
    std::vector<Placed> placed;
    RunsOfParts runs_of_parts(shape);
    for (const PackPart& part : parts) {
      placed.push_back({placed.empty() ? 0 : placed.back().begin + placed.back().elements, part.elements});
      std::optional<ByteSpan> reference;
      if (part.reference) reference = bytes_of(in, placed[*part.reference], format.bytes);
      const std::vector<NumberRun> runs = runs_of_parts.next(part.elements);
      const Prediction chosen = encode_part(format, runs, bytes_of(in, placed.back(), format.bytes), reference,
                                            bytes_of(codes, placed.back(), format.bytes));
      writer.varint(part.elements);
      writer.u8(static_cast<uint8_t>(chosen));
      if (chosen != Prediction::own) writer.varint(*part.reference);
      if (chosen != Prediction::quotient) write_runs(writer, runs);
    }
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (in.size() != out.size()) return Status::corrupt("a filtered stage has another size than it says");
    ByteReader reader(params);
    VARVE_ASSIGN(const uint8_t head, reader.u8());
    VARVE_ASSIGN(const kernels::NumberFormat format, unpack_number_format(head));
    if (!format.floating || format.bytes < 4) return Status::corrupt("numbers of this format do not predict others");
    VARVE_ASSIGN(const uint64_t count, reader.varint());
    if (count > kPartsMax) return Status::corrupt("a pack has too many parts");
    uint64_t left = in.size() / format.bytes;
    std::vector<Placed> placed;
    KeptRoom room;
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_ASSIGN(const uint64_t elements, reader.varint());
      if (elements == 0 || elements > left) return Status::corrupt("parts and pack differ in size");
      placed.push_back({in.size() / format.bytes - left, elements});
      left -= elements;
      VARVE_ASSIGN(const uint8_t prediction, reader.u8());
      std::optional<ByteSpan> reference;
      if (prediction != static_cast<uint8_t>(Prediction::own)) {
        VARVE_ASSIGN(const uint64_t number, reader.varint());
        if (number >= i || placed[number].elements != elements) return Status::corrupt("a part has a wrong reference");
        reference = bytes_of(out, placed[number], format.bytes);
      }
      std::vector<NumberRun> runs;
      if (prediction != static_cast<uint8_t>(Prediction::quotient)) {
        VARVE_ASSIGN(runs, read_runs(reader, elements));
      }
      VARVE_TRY(decode_part(format, prediction, runs, bytes_of(in, placed.back(), format.bytes), reference, room,
                            bytes_of(out, placed.back(), format.bytes)));
    }
    if (left != 0 || !reader.at_end()) return Status::corrupt("parts and pack differ in size");
    std::copy(in.end() - static_cast<ptrdiff_t>(in.size() % format.bytes), in.end(),
              out.end() - static_cast<ptrdiff_t>(in.size() % format.bytes));
    return {};
  }

 private:
  /// Those of the shape, made to cover so many elements; a reference that is not as long as what it predicts is none.
  static std::vector<PackPart> parts_of(const PackShape& shape, uint64_t elements) {
    std::vector<PackPart> parts;
    uint64_t left = elements;
    for (const PackPart& part : shape.parts) {
      if (left == 0 || parts.size() + 1 == kPartsMax) break;
      if (part.elements == 0) break;
      PackPart taken{.elements = std::min(part.elements, left), .reference = part.reference};
      if (taken.reference && (*taken.reference >= parts.size() || parts[*taken.reference].elements != taken.elements))
        taken.reference.reset();
      left -= taken.elements;
      parts.push_back(taken);
    }
    if (left > 0) parts.push_back({.elements = left, .reference = {}});
    return parts;
  }

  /// What makes the numbers of a part smallest, by some pieces of it.
  static Prediction choose(kernels::NumberFormat format, const std::vector<kernels::DifferenceRun>& differences,
                           ByteSpan numbers, ByteSpan reference) {
    thread_local KeptRoom kept;
    std::array<uint64_t, 3> bits{};  // by Prediction
    const auto count = [&](Prediction prediction, ByteSpan codes) {
      bits[static_cast<size_t>(prediction)] += kernels::code_bits(format.bytes, codes);
    };
    for_each_piece(numbers.size(), [&](size_t begin, size_t bytes) {
      const MutableByteSpan room = kept.take(3 * bytes);
      const MutableByteSpan own = room.first(bytes), others = room.subspan(bytes, bytes), codes = room.last(bytes);
      kernels::difference_forward_piece(format, differences, numbers, begin, own);
      count(Prediction::own, own);
      kernels::difference_forward_piece(format, differences, reference, begin, others);
      kernels::subtract_codes(format.bytes, own, others, codes);
      count(Prediction::difference, codes);
      kernels::quotient_forward(format, numbers.subspan(begin, bytes), reference.subspan(begin, bytes), codes);
      count(Prediction::quotient, codes);
    });
    Prediction best = Prediction::own;
    double least = kWorth * static_cast<double>(bits[0]);
    for (const Prediction prediction : {Prediction::difference, Prediction::quotient}) {
      const auto taken = static_cast<double>(bits[static_cast<size_t>(prediction)]);
      if (taken >= least) continue;
      least = taken;
      best = prediction;
    }
    return best;
  }

  static Prediction encode_part(kernels::NumberFormat format, const std::vector<NumberRun>& runs, ByteSpan numbers,
                                std::optional<ByteSpan> reference, MutableByteSpan codes) {
    const std::vector<kernels::DifferenceRun> differences = difference_runs(runs);
    const Prediction chosen = reference ? choose(format, differences, numbers, *reference) : Prediction::own;
    switch (chosen) {
      case Prediction::own: kernels::difference_forward(format, differences, numbers, codes); break;
      case Prediction::quotient: kernels::quotient_forward(format, numbers, *reference, codes); break;
      case Prediction::difference: {
        thread_local KeptRoom kept;
        const MutableByteSpan room = kept.take(2 * codes.size());
        const MutableByteSpan own = room.first(codes.size()), others = room.last(codes.size());
        kernels::difference_forward(format, differences, numbers, own);
        kernels::difference_forward(format, differences, *reference, others);
        kernels::subtract_codes(format.bytes, own, others, codes);
        break;
      }
    }
    return chosen;
  }

  static Status decode_part(kernels::NumberFormat format, uint8_t prediction, const std::vector<NumberRun>& runs,
                            ByteSpan codes, std::optional<ByteSpan> reference, KeptRoom& room, MutableByteSpan out) {
    switch (static_cast<Prediction>(prediction)) {
      case Prediction::own: kernels::difference_inverse(format, difference_runs(runs), codes, out); return {};
      case Prediction::quotient: kernels::quotient_inverse(format, codes, *reference, out); return {};
      case Prediction::difference: {
        const std::vector<kernels::DifferenceRun> differences = difference_runs(runs);
        const MutableByteSpan sums = room.take(2 * codes.size());
        kernels::difference_forward(format, differences, *reference, sums.first(codes.size()));
        kernels::add_codes(format.bytes, codes, sums.first(codes.size()), sums.subspan(codes.size()));
        kernels::difference_inverse(format, differences, sums.subspan(codes.size()), out);
        return {};
      }
    }
    return Status::corrupt("an unknown prediction");
  }
};

/// What it takes to encode each variable of a trial, by itself or by another.
class Costs {
 public:
  Costs(const PackShape& shape, std::span<const ByteSpan> samples)
      : count_(samples.size()), by_itself_(count_), by_other_(count_ * count_) {
    const kernels::NumberFormat format = number_format(shape.type);
    const size_t bytes = samples[0].size();
    const std::vector<kernels::DifferenceRun> runs = difference_runs(number_runs(shape, bytes / format.bytes));
    std::vector<ByteVector> own;
    for (size_t i = 0; i < count_; ++i) {
      kernels::difference_forward(format, runs, samples[i], own.emplace_back(bytes));
      by_itself_[i] = static_cast<double>(kernels::code_bits(format.bytes, own[i]));
    }
    ByteVector codes(bytes);
    for (size_t i = 0; i < count_; ++i) {
      for (size_t j = 0; j < count_; ++j) {
        if (i == j) continue;
        kernels::subtract_codes(format.bytes, own[i], own[j], codes);
        const uint64_t difference = kernels::code_bits(format.bytes, codes);
        kernels::quotient_forward(format, samples[i], samples[j], codes);
        by_other_[i * count_ + j] = static_cast<double>(std::min(difference, kernels::code_bits(format.bytes, codes)));
      }
    }
  }

  size_t count() const { return count_; }
  /// How much less `variable` takes if `reference` predicts it, in bits; 0 if that is not worth it.
  double gain(uint32_t variable, uint32_t reference) const {
    const double by_itself = by_itself_[variable], by_other = by_other_[variable * count_ + reference];
    return by_other < kWorthTogether * by_itself ? by_itself - by_other : 0;
  }

 private:
  const size_t count_;
  std::vector<double> by_itself_, by_other_;  ///< the latter by predicted and predicting variable
};

}  // namespace

bool predicts_across(const ElementType& type) {
  return type.kind == ElementKind::floating && (type.bytes == 4 || type.bytes == 8);
}

Predictions find_predictions(const PackShape& shape, std::span<const ByteSpan> samples) {
  Predictions found{.order = {}, .reference = std::vector<std::optional<uint32_t>>(samples.size())};
  if (samples.size() < 2 || samples[0].empty()) return found;
  const Costs costs(shape, samples);
  std::vector<uint32_t> left(costs.count());
  std::iota(left.begin(), left.end(), 0u);
  const auto take = [&](uint32_t variable) {
    found.order.push_back(variable);
    std::erase(left, variable);
  };
  while (!left.empty()) {
    double most = 0;
    uint32_t next = left.front();
    for (const uint32_t variable : left) {
      for (const uint32_t reference : found.order) {
        if (const double gain = costs.gain(variable, reference); gain > most) {
          most = gain;
          next = variable;
          found.reference[variable] = reference;
        }
      }
    }
    if (most > 0) {
      take(next);
      for (const uint32_t variable : left) found.reference[variable].reset();
      continue;
    }
    // What is to be predicted by nothing: the one that most gain by.
    for (const uint32_t variable : left) {
      double gains = 0;
      for (const uint32_t other : left) gains += other == variable ? 0 : costs.gain(other, variable);
      if (gains > most) {
        most = gains;
        next = variable;
      }
    }
    if (most == 0) break;
    take(next);
  }
  return found;
}

Result<bool> worth_together(const PackShape& shape, std::span<const ByteSpan> samples, const Predictions& found,
                            Effort effort) {
  // Of packs that are far larger.
  const auto size_of = [](const EncodedBytes& encoded) { return size_of_sample(encoded, 0, 1); };
  size_t apart = 0;
  PackShape together_shape{.type = shape.type, .runs = {}};
  ByteVector raw;
  for (const uint32_t variable : found.order) {
    const ByteSpan sample = samples[variable];
    size_t least = sample.size();
    for (const CodecChain& chain : candidate_chains(sample, shape, effort)) {
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample, shape));
      least = std::min(least, size_of(encoded));
    }
    apart += least;
    raw.insert(raw.end(), sample.begin(), sample.end());
    together_shape.runs.insert(together_shape.runs.end(), shape.runs.begin(), shape.runs.end());
    PackPart part{.elements = sample.size() / shape.type.bytes, .reference = {}};
    if (found.reference[variable]) {
      const auto reference = std::find(found.order.begin(), found.order.end(), *found.reference[variable]);
      part.reference = static_cast<uint32_t>(reference - found.order.begin());
    }
    together_shape.parts.push_back(part);
  }
  VARVE_ASSIGN(const EncodedBytes together, encode_chain(across_chain(effort), raw, together_shape));
  return static_cast<double>(size_of(together)) < kWorthInAll * static_cast<double>(apart);
}

const Codec& across_codec() {
  static const AcrossCodec codec;
  return codec;
}

}  // namespace varve
