// Unformatted sequential files of Fortran programs: records between their lengths, and nothing else. GNU Fortran's
// manual describes them under "File format of unformatted sequential files"; other compilers write the same.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <map>
#include <optional>

#include "layout/array_type.h"
#include "layout/layout_reader.h"

namespace varve {
namespace {

constexpr uint64_t kMarkerBytes = 4;
/// Records and parts of records. Each may cost a block of the file.
constexpr size_t kRecordPartsMax = 500'000;
/// So many records in a row of one length are the rows of one array; fewer may be different things.
constexpr size_t kRowsMin = 32;
/// If there are more variables than that, records of one length are taken together wherever they are.
constexpr size_t kRecordVariablesMax = 1000;

struct FortranRecord {
  std::vector<Extent> parts;  ///< no empty ones
  uint64_t bytes = 0;
};

/// Goes from one length of a record to the next.
class RecordChain {
 public:
  RecordChain(FileBlocks& blocks, uint64_t file_bytes, ByteOrder order)
      : blocks_(blocks), file_bytes_(file_bytes), order_(order) {}

  /// All records, if their lengths agree up to the end of the file.
  std::optional<std::vector<FortranRecord>> read() {
    std::vector<FortranRecord> records;
    size_t parts_left = kRecordPartsMax;
    while (at_ < file_bytes_) {
      FortranRecord record;
      bool continued = false, continues = false;
      do {
        if (parts_left-- == 0) return std::nullopt;
        const std::optional<int32_t> before = take_marker();
        if (!before || *before == INT32_MIN) return std::nullopt;
        const auto bytes = static_cast<uint64_t>(std::abs(*before));
        if (bytes > file_bytes_ - at_) return std::nullopt;
        if (bytes > 0) record.parts.push_back({at_, bytes});
        record.bytes += bytes;
        at_ += bytes;
        const std::optional<int32_t> after = take_marker();
        continued = continues;
        continues = *before < 0;
        // Behind a part, a negative length means that it is not the first one.
        if (!after || *after != static_cast<int32_t>(continued ? -int64_t(bytes) : int64_t(bytes))) return std::nullopt;
      } while (continues);
      // Zeros are no records: a file of them would be nothing else.
      if (records.empty() && record.bytes == 0) return std::nullopt;
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  std::optional<int32_t> take_marker() {
    std::array<std::byte, kMarkerBytes> raw;
    if (file_bytes_ - at_ < raw.size() || !blocks_.read(at_, raw)) return std::nullopt;
    at_ += raw.size();
    const auto number = load_le<uint32_t>(raw.data());
    return static_cast<int32_t>(order_ == ByteOrder::little ? number : __builtin_bswap32(number));
  }

  FileBlocks& blocks_;
  const uint64_t file_bytes_;
  const ByteOrder order_;
  uint64_t at_ = 0;
};

std::string record_name(size_t index) { return fmt::format("/record{}", index + 1); }

Variable record_variable(FortranRecord record, size_t index) {
  Variable variable = bytes_variable(record_name(index), {0, record.bytes});
  variable.extents = std::move(record.parts);
  return variable;
}

/// Some records of one length, each of one part, as the rows of an array.
Variable rows_variable(const std::vector<FortranRecord>& records, const std::vector<size_t>& rows) {
  const uint64_t bytes = records[rows.front()].bytes;
  Variable variable;
  variable.name = record_name(rows.front());
  variable.shape = {rows.size(), bytes};
  variable.run_shape = {bytes};
  for (const size_t row : rows) variable.extents.push_back(records[row].parts.front());
  return variable;
}

/// Where the records of the same length that begin at `first` end.
size_t end_of_equal_records(const std::vector<FortranRecord>& records, size_t first) {
  size_t end = first + 1;
  while (end < records.size() && records[end].bytes == records[first].bytes && records[end].parts.size() == 1) ++end;
  return end;
}

std::vector<Variable> variables_in_order(std::vector<FortranRecord>& records) {
  std::vector<Variable> variables;
  for (size_t i = 0; i < records.size() && variables.size() <= kRecordVariablesMax;) {
    const size_t end = records[i].parts.size() == 1 ? end_of_equal_records(records, i) : i + 1;
    if (end - i >= kRowsMin) {
      std::vector<size_t> rows;
      for (; i < end; ++i) rows.push_back(i);
      variables.push_back(rows_variable(records, rows));
    }
    for (; i < end; ++i) {
      if (records[i].bytes > 0) variables.push_back(record_variable(records[i], i));
    }
  }
  return variables;
}

std::vector<Variable> variables_by_length(std::vector<FortranRecord>& records) {
  std::vector<Variable> variables;
  std::map<uint64_t, std::vector<size_t>> rows_of;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].parts.size() == 1) {
      rows_of[records[i].bytes].push_back(i);
    } else if (records[i].parts.size() > 1) {
      variables.push_back(record_variable(records[i], i));
    }
  }
  for (const auto& [bytes, rows] : rows_of) variables.push_back(rows_variable(records, rows));
  return variables;
}

class FortranReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "Fortran"; }

  /// There is no magic number: all lengths have to agree. Nearly every other file ends that at once.
  bool recognises(const ReadAt& read, ByteSpan first_bytes, uint64_t file_bytes) const override {
    if (!begins_with_record(read, first_bytes, file_bytes)) return false;
    return read_safely(read, file_bytes).ok();
  }
  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    FileBlocks blocks;
    blocks.open(read);
    return read_fortran_layout(blocks, file_bytes);
  }

 private:
  static bool begins_with_record(const ReadAt& read, ByteSpan first_bytes, uint64_t file_bytes) {
    if (first_bytes.size() <= 2 * kMarkerBytes) return false;
    const auto little = load_le<uint32_t>(first_bytes.data());
    for (const uint32_t marker : {little, __builtin_bswap32(little)}) {
      const auto bytes = static_cast<uint64_t>(std::abs(int64_t{static_cast<int32_t>(marker)}));
      if (bytes == 0 || bytes > file_bytes - 2 * kMarkerBytes) continue;
      std::array<std::byte, kMarkerBytes> after;
      const Result<uint64_t> got = read(kMarkerBytes + bytes, after);
      if (!got.ok() || *got != after.size()) continue;
      // The length behind a part that another one follows has not its sign.
      const auto found = load_le<uint32_t>(after.data());
      const auto expected = static_cast<uint32_t>(bytes);
      if (found == (marker == little ? expected : __builtin_bswap32(expected))) return true;
    }
    return false;
  }
};

}  // namespace

Result<Layout> read_fortran_layout(FileBlocks& blocks, uint64_t file_bytes) {
  for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
    std::optional<std::vector<FortranRecord>> records = RecordChain(blocks, file_bytes, order).read();
    if (!records || records->empty()) continue;
    Layout layout{.format = "fortran", .variables = variables_in_order(*records)};
    if (layout.variables.size() > kRecordVariablesMax) layout.variables = variables_by_length(*records);
    if (layout.variables.size() > kRecordVariablesMax) break;
    return layout;
  }
  return Status::unsupported("not a file of Fortran records that are understood");
}

std::unique_ptr<LayoutReader> make_fortran_reader() { return std::make_unique<FortranReader>(); }

}  // namespace varve
