#include "sets/round_trip.h"

#include <algorithm>
#include <cstdlib>

#include "core/memory_file_system.h"

namespace varve::test {

std::string Way::name() const { return std::string(scheme_name(scheme)) + "/" + codec + "/" + chunker; }

std::vector<Way> every_way(const std::vector<std::string>& codecs, const std::vector<std::string>& chunkers) {
  std::vector<Way> ways;
  for (Scheme scheme : kSchemes) {
    for (const std::string& codec : codecs) {
      for (const std::string& chunker : chunkers) ways.push_back({scheme, codec, chunker});
    }
  }
  return ways;
}

SaveOptions options_of(const Way& way, const std::string& job, uint64_t step) {
  SaveOptions options = save_options(job, step);
  options.scheme = way.scheme;
  options.codec = CodecPolicy::parse(way.codec).value();
  options.chunker = parse_chunker(way.chunker).value();
  options.thread_count = 2;
  return options;
}

testing::AssertionResult come_back(const std::vector<std::string>& folders, const Way& way) {
  MemoryFileSystem fs;
  const auto store = make_store(fs);
  for (size_t step = 0; step < folders.size(); ++step) {
    Result<SaveReport> saved = save_folder(*store, folders[step], options_of(way, "job", step), layout_service());
    if (!saved.ok()) return testing::AssertionFailure() << way.name() << ": " << saved.status().to_string();
  }
  for (size_t step = 0; step < folders.size(); ++step) {
    testing::AssertionResult same = restores_as(*store, {"job", step}, snapshot_of(folders[step]));
    if (!same) return same << way.name();
  }
  return is_whole(*store) << way.name();
}

std::vector<std::vector<std::string>> real_data() {
  namespace fs = std::filesystem;
  std::vector<std::vector<std::string>> programs;
  const char* data = std::getenv("VARVE_TEST_DATA");
  if (data == nullptr) return programs;
  for (const auto& program : fs::directory_iterator(data)) {
    if (!program.is_directory()) continue;
    std::vector<std::string> dumps;
    for (const auto& dump : fs::directory_iterator(program)) {
      if (dump.is_directory()) dumps.push_back(dump.path().string());
    }
    if (dumps.empty()) dumps.push_back(program.path().string());
    std::sort(dumps.begin(), dumps.end());
    programs.push_back(std::move(dumps));
  }
  std::sort(programs.begin(), programs.end());
  return programs;
}

}  // namespace varve::test
