#include "engine/group_streams.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "core/file_system.h"
#include "engine/pack_builder.h"
#include "layout/array_type.h"
#include "layout/npy_array.h"

namespace varve {

namespace {
constexpr uint64_t kSmallFileBytes = 64_KiB;
/// Where a group has so many files of unknown bytes that are no longer than kJoinedFileBytesMax, they share chunks.
constexpr size_t kJoinedFilesMin = 256;
/// What the descriptions of a file's small variables take in its leaf, about; any further ones are only counted. In
/// memory they take a few times as much while their group is saved.
constexpr uint64_t kSmallVariableBytesMax = 8_MiB;
/// What the descriptions of a file's variables take in its leaf at most, about, and how many similarity classes they
/// are of: so that the leaf can hold them, and all references.
constexpr uint64_t kLayoutBytesMax = 64_MiB;
constexpr uint64_t kClassesPerFileMax = kClassesPerLeafMax / 2;

class Describer {
 public:
  Describer(Source& source, const SaveOptions& options)
      : source_(source),
        options_(options),
        aware_(options.scheme == Scheme::aware || options.scheme == Scheme::aware_block) {}

  Result<GroupStreams> run(ProgressSink& progress) {
    VARVE_ASSIGN(std::vector<Layout> layouts, read_layouts(progress));
    const std::vector<SourceFile>& files = source_.files();
    group_.files.resize(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      if (!fits_into_leaf(layouts[i], files[i].bytes)) {
        progress.warning(Status::resource_limit("it has more variables than a set can describe, and is saved as bytes",
                                                files[i].path));
        layouts[i] = opaque_layout(files[i].bytes, "/" + base_name(files[i].path));
      }
      describe(group_.files[i], files[i], std::move(layouts[i]));
    }
    make_streams();
    join_short_files();
    sort_classes();
    return std::move(group_);
  }

 private:
  Result<std::vector<Layout>> read_layouts(ProgressSink& progress) {
    if (aware_) return source_.layouts(progress);
    const std::vector<SourceFile>& files = source_.files();
    std::vector<Layout> layouts(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i].type == FileType::regular) {
        layouts[i] = opaque_layout(files[i].bytes, "/" + base_name(files[i].path));
      }
    }
    return layouts;
  }

  /// One that goes with the skeleton.
  bool is_small(const Variable& variable, uint64_t file_bytes) const {
    const uint64_t bytes = variable.stored_bytes();
    return bytes < options_.variables.small_bytes && bytes < file_bytes;
  }

  bool fits_into_leaf(const Layout& layout, uint64_t file_bytes) const {
    uint64_t described = 0;
    std::unordered_set<std::string> classes;
    const bool many = layout.variables.size() > kClassesPerFileMax;
    for (const Variable& variable : layout.variables) {
      if (is_small(variable, file_bytes)) continue;
      described += described_bytes(variable);
      if (many) classes.insert(options_.variables.match.class_key(variable, false));
    }
    return described <= kLayoutBytesMax && classes.size() <= kClassesPerFileMax;
  }

  void describe(TreeFile& file, const SourceFile& source, Layout layout) {
    file.path = source.path;
    file.type = source.type;
    file.mode = source.mode;
    file.modified_s = source.modified_s;
    file.modified_ns = source.modified_ns;
    file.rank = source.rank;
    file.link_target = source.link_target;
    if (source.type != FileType::regular) return;
    file.bytes = source.bytes;
    group_.raw_bytes += file.bytes;
    group_.variable_count += layout.variables.size();
    set_small_variables_apart(file, layout.variables);
    file.layout = std::move(layout);
    file.streams.resize(file.layout.variables.size() + 1);
  }

  void set_small_variables_apart(TreeFile& file, std::vector<Variable>& variables) const {
    uint64_t left = kSmallVariableBytesMax;
    std::vector<Variable> large;
    for (Variable& variable : variables) {
      const uint64_t described = described_bytes(variable);
      if (!is_small(variable, file.bytes)) {
        large.push_back(std::move(variable));
      } else if (described <= left) {
        left -= described;
        file.small_variables.push_back(std::move(variable));
      } else {
        ++file.unnamed_variable_count;
      }
    }
    variables = std::move(large);
  }

  void make_streams() {
    for (size_t i = 0; i < group_.files.size(); ++i) {
      TreeFile& file = group_.files[i];
      const bool opaque_file = is_opaque(file.layout);
      for (size_t position = 0; position < file.streams.size(); ++position) {
        Stream stream;
        stream.file = static_cast<uint32_t>(i);
        stream.position = static_cast<uint32_t>(position);
        stream.rank = file.rank;
        stream.extents = stream_extents(file, position);
        for (const Extent& extent : stream.extents) stream.bytes += extent.bytes;
        if (position == 0) {
          stream.class_id = class_id(skeleton_class(file.layout.format));
        } else {
          describe_variable(stream, file, file.layout.variables[position - 1], opaque_file);
        }
        group_.streams.push_back(std::move(stream));
      }
    }
  }

  void describe_variable(Stream& stream, TreeFile& file, const Variable& variable, bool opaque_file) {
    const bool small_file = opaque_file && file.bytes < kSmallFileBytes;
    stream.class_id = class_id(!aware_ ? "file_BYTES" : small_file ? "small-files_BYTES" : class_key(file, variable));
    file.class_of.push_back(stream.class_id);
    stream.joins = aware_ && small_file && stream.bytes <= kJoinedFileBytesMax &&
                   options_.chunker.bytes_average >= kJoinedChunkBytesMax;
    const ElementType type = storage_type(variable);
    if (type.bytes <= kTypedElementBytesMax && stream.bytes % type.bytes == 0) stream.type = type;
    const std::vector<uint64_t>& shape = variable.run_shape.empty() ? variable.shape : variable.run_shape;
    stream.encoded = variable.encoded;
    if (!variable.encoded) stream.dims.assign(shape.rbegin(), shape.rend());
    std::erase(stream.dims, uint64_t{1});
  }

  /// What is written of each chunk would be a fifth of a file of 300 bytes. Few files have chunks of their own
  /// nevertheless: when one changes, no other one is stored with it.
  void join_short_files() {
    const auto short_files = std::count_if(group_.streams.begin(), group_.streams.end(),
                                           [](const Stream& stream) { return stream.joins && stream.bytes > 0; });
    if (static_cast<size_t>(short_files) >= kJoinedFilesMin) return;
    for (Stream& stream : group_.streams) stream.joins = false;
  }

  std::string class_key(const TreeFile& file, const Variable& variable) const {
    const MatchRule& match = options_.variables.match;
    const std::string& format = file.layout.format;
    const std::string file_name = "/" + base_name(file.path);
    if (is_opaque(file.layout) || variable.name == file_name) return match.class_key(variable, true);
    Variable named{variable.name, variable.type, variable.shape, {}, {}, variable.encoded};
    const bool named_by_file = format == kNpyFormat && variable.name == kNpyArrayName;
    if (named_by_file) named.name = file_name;
    // In networks, modules are named like groups, with dots between: the layers of `/layers.3.weight` are alike.
    if (format == kTorchFormat || format == kSafetensorsFormat)
      std::replace(named.name.begin(), named.name.end(), '.', '/');
    return match.class_key(named, named_by_file);
  }

  uint32_t class_id(const std::string& key) {
    auto [found, added] = class_ids_.emplace(key, static_cast<uint32_t>(group_.class_keys.size()));
    if (added) group_.class_keys.push_back(key);
    return found->second;
  }

  void sort_classes() {
    // By name, so that the order of classes does not depend on which file came first.
    std::vector<std::string>& keys = group_.class_keys;
    std::vector<uint32_t> order(keys.size()), rank_of(keys.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    std::vector<std::string> sorted;
    for (uint32_t i = 0; i < order.size(); ++i) {
      rank_of[order[i]] = i;
      sorted.push_back(keys[order[i]]);
    }
    keys = std::move(sorted);
    for (Stream& stream : group_.streams) stream.class_id = rank_of[stream.class_id];
    for (TreeFile& file : group_.files) {
      for (uint32_t& id : file.class_of) id = rank_of[id];
    }
  }

  Source& source_;
  const SaveOptions& options_;
  const bool aware_;
  GroupStreams group_;
  std::unordered_map<std::string, uint32_t> class_ids_;
};
}  // namespace

Result<GroupStreams> describe_streams(Source& source, const SaveOptions& options, ProgressSink& progress) {
  return Describer(source, options).run(progress);
}

std::vector<ClassStreams> streams_by_class(GroupStreams& group) {
  std::vector<ClassStreams> classes(group.class_keys.size());
  for (Stream& stream : group.streams) classes[stream.class_id].push_back(&stream);
  for (ClassStreams& streams : classes)
    std::stable_sort(streams.begin(), streams.end(),
                     [](const Stream* a, const Stream* b) { return a->rank < b->rank; });
  return classes;
}

uint64_t class_bytes(const ClassStreams& streams) {
  uint64_t bytes = 0;
  for (const Stream* stream : streams) bytes += stream->bytes;
  return bytes;
}

bool is_opaque(const Layout& layout) {
  return layout.format == "raw" && layout.variables.size() == 1 && layout.variables[0].type == ElementType{};
}

uint64_t whole_block_bytes(const SaveOptions& options) {
  const uint64_t chunk_bytes = options.chunker.bytes_average;
  return (std::max(options.block_bytes, chunk_bytes) + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

}  // namespace varve
