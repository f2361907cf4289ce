#include "study/contents.h"

#include <algorithm>
#include <set>

namespace varve {

namespace {
Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) return spread;
  spread.least = *std::min_element(values.begin(), values.end());
  spread.most = *std::max_element(values.begin(), values.end());
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  return spread;
}

void count_files(const StudySet& set, SetContents& contents) {
  std::set<int64_t> ranks;
  std::set<std::string> formats;
  for (const SourceFile& file : set.files) {
    if (file.rank >= 0) ranks.insert(file.rank);
  }
  std::vector<double> bytes, variables;
  for (size_t i = 0; i < set.files.size(); ++i) {
    if (set.files[i].type != FileType::regular) continue;
    const bool counts = ranks.empty() || set.files[i].rank >= 0;
    if (!counts) continue;
    const TreeFile& file = set.group.files[i];
    formats.insert(file.layout.format);
    bytes.push_back(static_cast<double>(file.bytes));
    variables.push_back(static_cast<double>(variable_count(file)));
  }
  contents.file_count = bytes.size();
  contents.rank_count = ranks.size();
  contents.file_bytes = spread_of(bytes);
  contents.variables_per_file = spread_of(variables);
  formats.erase("");
  contents.formats.assign(formats.begin(), formats.end());
}

void count_types(const StudySet& set, SetContents& contents) {
  for (const Stream& stream : set.group.streams) {
    const double share = static_cast<double>(stream.bytes) / static_cast<double>(set.bytes());
    const bool floating = stream.type.kind == ElementKind::floating;
    double& kind = stream.position == 0                 ? contents.skeleton
                   : floating && stream.type.bytes == 8 ? contents.doubles
                   : floating && stream.type.bytes == 4 ? contents.singles
                                                        : contents.other;
    kind += share;
  }
}
}  // namespace

Contents study_contents(const StudySeries& series) {
  Contents contents;
  for (const StudySet& set : series.sets) {
    SetContents& of_set = contents.sets.emplace_back();
    of_set.label = set.label;
    of_set.bytes = set.bytes();
    of_set.variable_count = set.group.variable_count;
    count_files(set, of_set);
    count_types(set, of_set);
  }
  const StudySet& newest = series.sets.back();
  std::vector<ClassContents> classes(newest.group.class_keys.size());
  for (const Stream& stream : newest.group.streams) {
    ClassContents& of_class = classes[stream.class_id];
    of_class.class_key = newest.group.class_keys[stream.class_id];
    of_class.type = stream.type.name();
    if (stream.bytes > 0) ++of_class.stream_count;
    of_class.bytes += stream.bytes;
  }
  std::erase_if(classes, [](const ClassContents& each) { return each.bytes == 0; });
  std::stable_sort(classes.begin(), classes.end(),
                   [](const ClassContents& a, const ClassContents& b) { return a.bytes > b.bytes; });
  contents.classes = std::move(classes);
  return contents;
}

}  // namespace varve
