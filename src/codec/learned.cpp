#include "codec/learned.h"

#include <algorithm>
#include <bit>

#include "codec/numbers.h"

namespace varve {

namespace {
/// More is no guess of ours: what these limits give stays far within 64 bits.
constexpr uint64_t kRecordReadMax = 1024, kExtentReadMax = uint64_t{1} << 28;
constexpr uint64_t kDimensionsMax = 3;

/// Whether trials choose chains with this stage. What makes several chains one, or makes again what was opened, is put
/// around what they choose, and checked there; what rotates comes before it.
bool is_chosen_by_trials(const CodecChain::Stage& stage) {
  switch (stage.codec->number()) {
    case CodecNumber::sections:
    case CodecNumber::inflate:
    case CodecNumber::blosc:
    case CodecNumber::rotate: return false;
    default: return true;
  }
}
}  // namespace

void write_type(ByteWriter& w, const ElementType& type) { w.text(type.name()); }

Result<ElementType> read_type(ByteReader& reader) {
  VARVE_ASSIGN(const std::string_view name, reader.text());
  return ElementType::parse(name);
}

Result<unsigned> read_at_most(ByteReader& reader, unsigned most) {
  VARVE_ASSIGN(const uint64_t number, reader.varint());
  if (number > most) return Status::corrupt("a larger number than there can be", std::to_string(number));
  return static_cast<unsigned>(number);
}

void write_guess(ByteWriter& w, const NumberGuess& guess) {
  write_type(w, guess.type);
  w.varint(guess.phase);
  w.varint(guess.record);
  w.varint(guess.dims.size());
  for (const uint64_t extent : guess.dims) w.varint(extent);
  w.le64(std::bit_cast<uint64_t>(guess.cost));
  w.u8(guess.sign_last ? 1 : 0);
}

Result<NumberGuess> read_guess(ByteReader& reader) {
  NumberGuess guess;
  VARVE_ASSIGN(guess.type, read_type(reader));
  if (!is_machine_number(guess.type) || guess.type.bytes < 2)
    return Status::corrupt("guesses are of numbers", guess.type.name());
  VARVE_ASSIGN(guess.phase, read_at_most(reader, guess.type.bytes - 1));
  VARVE_ASSIGN(guess.record, reader.varint());
  VARVE_ASSIGN(const uint64_t dimensions, reader.count());
  bool possible = guess.record > 0 && guess.record <= kRecordReadMax && dimensions <= kDimensionsMax && dimensions != 1;
  for (uint64_t i = 0; possible && i < dimensions; ++i) {
    VARVE_ASSIGN(const uint64_t extent, reader.varint());
    possible = extent > 0 && extent <= kExtentReadMax;
    guess.dims.push_back(extent);
  }
  VARVE_ASSIGN(const uint64_t cost, reader.le64());
  guess.cost = std::bit_cast<double>(cost);
  VARVE_ASSIGN(const unsigned sign_last, read_at_most(reader, 1));
  guess.sign_last = sign_last == 1;
  const bool may_be_so = !guess.sign_last || guess.type.kind == ElementKind::floating;
  if (!possible || !may_be_so || !(guess.cost >= 0 && guess.cost <= 1))
    return Status::corrupt("an impossible guess", guess.type.name());
  return guess;
}

void write_candidate(ByteWriter& w, const Candidate& candidate) {
  w.text(candidate.chain.name());
  w.u8(candidate.straight ? 1 : 0);
  w.u8(candidate.as ? 1 : 0);
  if (candidate.as) write_guess(w, *candidate.as);
}

Result<Candidate> read_candidate(ByteReader& reader) {
  Candidate candidate;
  VARVE_ASSIGN(const std::string_view chain, reader.text());
  VARVE_ASSIGN(candidate.chain, CodecChain::parse(chain));
  const std::vector<CodecChain::Stage>& stages = candidate.chain.stages();
  if (!std::all_of(stages.begin(), stages.end(), is_chosen_by_trials))
    return Status::corrupt("a chain that no trial chooses", std::string(chain));
  // A stage more may come before them (encode_candidate()).
  if (stages.size() >= kChainStagesMax) return Status::corrupt("a chain is too long", std::string(chain));
  VARVE_ASSIGN(const unsigned straight, read_at_most(reader, 1));
  candidate.straight = straight == 1;
  VARVE_ASSIGN(const unsigned has_guess, read_at_most(reader, 1));
  if (has_guess == 0) return candidate;
  VARVE_ASSIGN(candidate.as, read_guess(reader));
  return candidate;
}

}  // namespace varve
