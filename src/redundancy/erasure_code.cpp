#include "redundancy/erasure_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "redundancy/galois_field.h"

namespace varve {

namespace {
/// FORMAT.md, "Redundancy files": the coefficient of data part `column` in part `row`.
uint8_t generator(uint32_t row, uint32_t column, uint32_t data_parts, uint32_t parity_parts) {
  if (row < data_parts) return row == column ? 1 : 0;
  return parity_parts == 1 ? 1 : galois_inverse(static_cast<uint8_t>(row ^ column));
}

std::vector<uint8_t> parity_rows(uint32_t data_parts, uint32_t parity_parts) {
  std::vector<uint8_t> rows;
  for (uint32_t row = data_parts; row < data_parts + parity_parts; ++row) {
    for (uint32_t column = 0; column < data_parts; ++column) {
      rows.push_back(generator(row, column, data_parts, parity_parts));
    }
  }
  return rows;
}

Status check_blocks(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets,
                    const BlockMatrix& matrix) {
  const auto as_long = [&](const auto& block) { return block.size() == sources[0].size(); };
  const bool fits = sources.size() == matrix.source_count() && targets.size() == matrix.target_count() &&
                    std::all_of(sources.begin(), sources.end(), as_long) &&
                    std::all_of(targets.begin(), targets.end(), as_long);
  return fits ? Status() : Status::internal("blocks of an erasure code differ in number or length");
}

bool are_different_parts(std::vector<uint32_t> parts, uint32_t part_count) {
  std::sort(parts.begin(), parts.end());
  return std::adjacent_find(parts.begin(), parts.end()) == parts.end() && (parts.empty() || parts.back() < part_count);
}
}  // namespace

Result<ErasureCode> ErasureCode::create(uint32_t data_parts, uint32_t parity_parts, ErasureKernel kernel) {
  if (data_parts == 0 || parity_parts == 0) {
    return Status::invalid_argument("an erasure code needs at least one data part and one parity part",
                                    fmt::format("{}+{}", data_parts, parity_parts));
  }
  if (uint64_t{data_parts} + parity_parts > kErasurePartsMax) {
    return Status::invalid_argument(fmt::format("an erasure code has at most {} parts", kErasurePartsMax),
                                    fmt::format("{}+{}", data_parts, parity_parts), "take smaller groups");
  }
  return ErasureCode(data_parts, parity_parts, kernel);
}

ErasureCode::ErasureCode(uint32_t data_parts, uint32_t parity_parts, ErasureKernel kernel)
    : data_parts_(data_parts),
      parity_parts_(parity_parts),
      kernel_(kernel),
      encoder_(parity_rows(data_parts, parity_parts), data_parts, kernel) {}

std::vector<uint8_t> ErasureCode::generator_row(uint32_t part) const {
  std::vector<uint8_t> row(data_parts_);
  for (uint32_t column = 0; column < data_parts_; ++column) {
    row[column] = generator(part, column, data_parts_, parity_parts_);
  }
  return row;
}

Status ErasureCode::encode(std::span<const ByteSpan> data, std::span<const MutableByteSpan> parity) const {
  VARVE_TRY(check_blocks(data, parity, encoder_));
  encoder_.apply(data, parity);
  return {};
}

Status ErasureCode::Repair::apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const {
  VARVE_TRY(check_blocks(sources, targets, matrix_));
  matrix_.apply(sources, targets);
  return {};
}

// The sources are their rows of the generator matrix times the data. So the data are the inverse of these rows times
// the sources, and a target is its own row times that.
Result<ErasureCode::Repair> ErasureCode::repair(std::vector<uint32_t> sources, std::vector<uint32_t> targets) const {
  if (sources.size() != data_parts_ || targets.empty() || !are_different_parts(sources, parts()) ||
      !are_different_parts(targets, parts())) {
    return Status::invalid_argument(fmt::format("a repair takes {} different parts, and makes others", data_parts_));
  }
  std::vector<uint8_t> rows;
  for (uint32_t source : sources) {
    const std::vector<uint8_t> row = generator_row(source);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  VARVE_ASSIGN(const std::vector<uint8_t> inverse, galois_inverse_matrix(rows, data_parts_));
  std::vector<uint8_t> coefficients;
  for (uint32_t target : targets) {
    const std::vector<uint8_t> row = generator_row(target);
    for (uint32_t column = 0; column < data_parts_; ++column) {
      uint8_t sum = 0;
      for (uint32_t i = 0; i < data_parts_; ++i) sum ^= galois_product(row[i], inverse[i * data_parts_ + column]);
      coefficients.push_back(sum);
    }
  }
  BlockMatrix matrix(std::move(coefficients), data_parts_, kernel_);
  return Repair(std::move(sources), std::move(targets), std::move(matrix));
}

Status ErasureCode::rebuild(const std::vector<bool>& present, std::span<const MutableByteSpan> blocks) const {
  if (present.size() != parts() || blocks.size() != parts()) {
    return Status::internal("a rebuild needs all parts of an erasure code, or room for them");
  }
  std::vector<uint32_t> sources, targets;
  for (uint32_t part = 0; part < parts(); ++part) {
    if (!present[part]) targets.push_back(part);
    if (present[part] && sources.size() < data_parts_) sources.push_back(part);
  }
  if (targets.empty()) return {};
  if (sources.size() < data_parts_) {
    return Status::invalid_argument(
        fmt::format("{} parts are lost, and {} can be rebuilt", targets.size(), parity_parts_));
  }
  std::vector<ByteSpan> from;
  std::vector<MutableByteSpan> to;
  from.reserve(sources.size());
  to.reserve(targets.size());
  for (uint32_t source : sources) from.emplace_back(blocks[source]);
  for (uint32_t target : targets) to.push_back(blocks[target]);
  VARVE_ASSIGN(const Repair made, repair(std::move(sources), std::move(targets)));
  return made.apply(from, to);
}

}  // namespace varve
