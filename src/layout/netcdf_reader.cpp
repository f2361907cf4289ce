#include "layout/layout_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "layout/layout.h"

namespace varve {
namespace {

constexpr uint32_t kTagDimension = 0x0a;
constexpr uint32_t kTagVariable = 0x0b;
constexpr uint32_t kTagAttribute = 0x0c;

/// Of a variable: of which a file may have no record yet, so that its size says nothing.
constexpr uint64_t kRecordBytesMax = uint64_t{1} << 48;

constexpr uint64_t padded_to_4(uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; }

/// One type code of the format (index = code), big-endian in the file.
struct NetcdfType {
  ElementKind kind;
  uint32_t bytes;
};
constexpr std::array<NetcdfType, 12> kTypes{{{ElementKind::opaque, 0},
                                             {ElementKind::signed_integer, 1},
                                             {ElementKind::text, 1},
                                             {ElementKind::signed_integer, 2},
                                             {ElementKind::signed_integer, 4},
                                             {ElementKind::floating, 4},
                                             {ElementKind::floating, 8},
                                             {ElementKind::unsigned_integer, 1},
                                             {ElementKind::unsigned_integer, 2},
                                             {ElementKind::unsigned_integer, 4},
                                             {ElementKind::signed_integer, 8},
                                             {ElementKind::unsigned_integer, 8}}};

struct NetcdfVariable {
  std::string name;
  std::vector<uint64_t> shape;  ///< of one record, if it is a record variable
  bool has_records = false;
  ElementType type;
  uint64_t begin = 0;
  uint64_t bytes = 0;  ///< of one record, if it is a record variable; without padding
};

/// Walks through the header, field by field.
class HeaderParser {
 public:
  explicit HeaderParser(FileWindow& file) : file_(file) {}

  Result<Layout> parse() {
    VARVE_TRY(read_magic());
    VARVE_ASSIGN(uint64_t record_count, read_count());
    uint64_t streaming = wide_counts_ ? UINT64_MAX : UINT32_MAX;
    if (record_count != streaming) record_count_ = record_count;
    VARVE_TRY(read_dimensions());
    VARVE_TRY(skip_attributes());
    VARVE_TRY(read_variables());
    return place_variables();
  }

 private:
  Result<ByteSpan> take(uint64_t bytes) {
    VARVE_ASSIGN(ByteSpan view, file_.view(at_, bytes));
    at_ += bytes;
    return view;
  }
  /// The format's integers are big-endian.
  Result<uint64_t> take_integer(unsigned bytes) {
    VARVE_ASSIGN(ByteSpan raw, take(bytes));
    uint64_t value = 0;
    for (std::byte b : raw) value = value << 8 | static_cast<uint8_t>(b);
    return value;
  }
  Result<uint64_t> read_count() { return take_integer(wide_counts_ ? 8 : 4); }
  Result<uint64_t> read_offset() { return take_integer(wide_offsets_ ? 8 : 4); }

  Status skip(uint64_t bytes) {
    if (bytes > file_.file_bytes() - at_) return Status::corrupt("the header reaches past the end of the file");
    at_ += bytes;
    return {};
  }

  Status read_magic() {
    VARVE_ASSIGN(ByteSpan magic, take(4));
    auto version = static_cast<uint8_t>(magic[3]);
    if (as_text(magic.first(3)) != "CDF" || (version != 1 && version != 2 && version != 5)) {
      return Status::corrupt("not a classic netCDF file");
    }
    wide_offsets_ = version != 1;
    wide_counts_ = version == 5;
    return {};
  }

  Result<std::string> read_name() {
    VARVE_ASSIGN(uint64_t length, read_count());
    if (length > kVariableNameBytesMax) return Status::resource_limit(fmt::format("a name has {} bytes", length));
    VARVE_ASSIGN(ByteSpan raw, take(padded_to_4(length)));
    return std::string(as_text(raw.first(length)));
  }

  /// The count of a list whose elements have this tag; absent lists have none.
  Result<uint64_t> read_list_count(uint32_t tag) {
    VARVE_ASSIGN(uint64_t found, take_integer(4));
    VARVE_ASSIGN(uint64_t count, read_count());
    if (found == 0 && count == 0) return uint64_t{0};
    if (found != tag) return Status::corrupt(fmt::format("the header has tag {} where {} belongs", found, tag));
    if (count > kVariablesPerFileMax) return Status::resource_limit(fmt::format("a header list has {} entries", count));
    return count;
  }

  Status read_dimensions() {
    VARVE_ASSIGN(uint64_t count, read_list_count(kTagDimension));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_TRY(read_name().status());
      VARVE_ASSIGN(uint64_t length, read_count());
      dimensions_.push_back(length);
    }
    return {};
  }

  Result<NetcdfType> read_type() {
    VARVE_ASSIGN(uint64_t code, take_integer(4));
    if (code == 0 || code >= kTypes.size()) return Status::corrupt(fmt::format("unknown data type {}", code));
    return kTypes[code];
  }

  Status skip_attributes() {
    VARVE_ASSIGN(uint64_t count, read_list_count(kTagAttribute));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_TRY(read_name().status());
      VARVE_ASSIGN(NetcdfType type, read_type());
      VARVE_ASSIGN(uint64_t value_count, read_count());
      if (value_count > file_.file_bytes()) return Status::corrupt("an attribute is larger than the file");
      VARVE_TRY(skip(padded_to_4(value_count * type.bytes)));
    }
    return {};
  }

  Status read_variables() {
    VARVE_ASSIGN(uint64_t count, read_list_count(kTagVariable));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_ASSIGN(NetcdfVariable variable, read_variable());
      variables_.push_back(std::move(variable));
    }
    return {};
  }

  Result<NetcdfVariable> read_variable() {
    NetcdfVariable variable;
    VARVE_ASSIGN(std::string name, read_name());
    variable.name = "/" + name;
    VARVE_ASSIGN(uint64_t dimension_count, read_count());
    if (dimension_count > kDimensionsMax) {
      return Status::resource_limit(fmt::format("a variable has {} dimensions", dimension_count), name);
    }
    for (uint64_t i = 0; i < dimension_count; ++i) {
      VARVE_ASSIGN(uint64_t index, read_count());
      if (index >= dimensions_.size()) return Status::corrupt("a variable names an unknown dimension", name);
      uint64_t length = dimensions_[index];
      // The record dimension is the one whose length is 0; only a variable's slowest one may be it.
      if (length == 0 && i > 0) return Status::corrupt("the record dimension is not the slowest", name);
      if (length == 0) {
        variable.has_records = true;
      } else {
        variable.shape.push_back(length);
      }
    }
    VARVE_TRY(skip_attributes());
    VARVE_ASSIGN(NetcdfType type, read_type());
    variable.type = {type.kind, ByteOrder::little, type.bytes};
    if (type.bytes > 1) variable.type.order = ByteOrder::big;
    // The stored size is not used: it is cut off at 32 bits in large files, and follows from the shape.
    VARVE_TRY(read_count().status());
    VARVE_ASSIGN(variable.begin, read_offset());
    std::optional<uint64_t> bytes = array_bytes(variable.shape, type.bytes);
    // Of one that has records, a file may have none yet: where they end is looked at when they are placed.
    const uint64_t bytes_max = variable.has_records ? kRecordBytesMax : file_.file_bytes();
    if (!bytes || *bytes > bytes_max) return Status::corrupt("a variable is larger than the file", name);
    variable.bytes = *bytes;
    return variable;
  }

  Result<Layout> place_variables() {
    auto has_records = [](const NetcdfVariable& v) { return v.has_records; };
    auto record_variables = std::count_if(variables_.begin(), variables_.end(), has_records);
    uint64_t record_bytes = 0;
    uint64_t records_begin = file_.file_bytes();
    for (const NetcdfVariable& variable : variables_) {
      if (!variable.has_records) continue;
      // Specification, "Note on padding": an only record variable is not padded between its records.
      const uint64_t bytes = record_variables == 1 ? variable.bytes : padded_to_4(variable.bytes);
      if (__builtin_add_overflow(record_bytes, bytes, &record_bytes))
        return Status::corrupt("the records are larger than any file", variable.name);
      records_begin = std::min(records_begin, variable.begin);
    }
    if (!record_count_ && record_bytes > 0) record_count_ = (file_.file_bytes() - records_begin) / record_bytes;
    uint64_t records = record_count_.value_or(0);
    if (record_variables > 0 && records > kExtentsPerFileMax / static_cast<uint64_t>(record_variables) &&
        record_variables > 1) {
      return Status::resource_limit(fmt::format("the file has {} records of {} variables", records, record_variables));
    }
    Layout layout{.format = "netcdf", .variables = {}};
    layout.variables.reserve(variables_.size());
    for (NetcdfVariable& variable : variables_) {
      VARVE_ASSIGN(Variable placed,
                   variable.has_records ? place_records(variable, records, record_bytes) : place_fixed(variable));
      layout.variables.push_back(std::move(placed));
    }
    return layout;
  }

  static Status ends_early(const NetcdfVariable& variable) {
    return Status::corrupt("the file ends before the data of variable", variable.name);
  }

  Result<Variable> place_fixed(NetcdfVariable& source) {
    if (source.begin > file_.file_bytes() || source.bytes > file_.file_bytes() - source.begin)
      return ends_early(source);
    Variable variable;
    variable.name = std::move(source.name);
    variable.type = source.type;
    variable.shape = std::move(source.shape);
    variable.extents = {{source.begin, source.bytes}};
    return variable;
  }

  Result<Variable> place_records(NetcdfVariable& source, uint64_t records, uint64_t record_bytes) {
    Variable variable;
    variable.type = source.type;
    variable.shape = {records};
    variable.shape.insert(variable.shape.end(), source.shape.begin(), source.shape.end());
    if (records > 0) {
      uint64_t distance = 0;
      bool overflows = __builtin_mul_overflow(records - 1, record_bytes, &distance);
      uint64_t after_begin = file_.file_bytes() - std::min(source.begin, file_.file_bytes());
      if (overflows || distance > after_begin || source.bytes > after_begin - distance) return ends_early(source);
      if (record_bytes == source.bytes) {
        variable.extents = {{source.begin, records * record_bytes}};
      } else {
        variable.extents.reserve(records);
        for (uint64_t i = 0; i < records; ++i) {
          variable.extents.push_back({source.begin + i * record_bytes, source.bytes});
        }
        variable.run_shape = source.shape.empty() ? std::vector<uint64_t>{1} : std::move(source.shape);
      }
    }
    variable.name = std::move(source.name);
    return variable;
  }

  FileWindow& file_;
  uint64_t at_ = 0;
  bool wide_offsets_ = false;
  bool wide_counts_ = false;
  std::optional<uint64_t> record_count_;  ///< nothing: left open by a streaming writer
  std::vector<uint64_t> dimensions_;      ///< lengths; 0 is the record dimension
  std::vector<NetcdfVariable> variables_;
};

class NetcdfReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "netCDF"; }
  bool recognises(const ReadAt&, ByteSpan first_bytes, uint64_t) const override {
    if (first_bytes.size() < 4 || as_text(first_bytes.first(3)) != "CDF") return false;
    auto version = static_cast<uint8_t>(first_bytes[3]);
    return version == 1 || version == 2 || version == 5;
  }
  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    FileWindow file(read, file_bytes);
    return read_netcdf_layout(file);
  }
};

}  // namespace

Result<Layout> read_netcdf_layout(FileWindow& file) { return HeaderParser(file).parse(); }

std::unique_ptr<LayoutReader> make_netcdf_reader() { return std::make_unique<NetcdfReader>(); }

}  // namespace varve
