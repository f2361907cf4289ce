#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sets/saving.h"
#include "sets/stopping_progress.h"
#include "study/study_set.h"

namespace varve::test {

/// A folder of sets for a study, which goes away with this object.
class SeriesFolder {
 public:
  std::string path() const { return folder_.path(); }
  /// Writes one rank's file of a set.
  void write(int set, int rank, ByteSpan contents) const {
    write_file(folder_ / ("dump" + std::to_string(set) + "/rank" + std::to_string(rank) + ".dat"), contents);
  }
  /// `raw`: what the files hold, as --raw takes it; empty: nobody knows.
  StudySeries open(const std::string& raw = {}) const { return open_at(folder_.path(), raw); }

  static StudySeries open_at(const std::string& path, const std::string& raw = {}) {
    SaveOptions options;
    if (!raw.empty()) options.variables.layouts.raw = parse_raw_description(raw).value();
    const Result<std::vector<SetPlace>> places = find_series({path});
    EXPECT_TRUE(places.ok()) << places.status().to_string();
    Result<StudySeries> series = open_series(*places, options, layout_service(), null_progress());
    EXPECT_TRUE(series.ok()) << series.status().to_string();
    return std::move(*series);
  }

 private:
  TempFolder folder_;
};

/// Joins bytes.
inline ByteVector joined(std::initializer_list<ByteSpan> parts) {
  ByteVector all;
  for (const ByteSpan part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace varve::test
