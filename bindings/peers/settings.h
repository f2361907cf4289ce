#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace varve::peers {

/// What is told to the user once, with the name of the library that he knows.
void tell(std::string_view library, const std::string& what);

/// A path as a specification of levels has it.
std::string level_place(std::string path);

/// Copies a file to where whoever reads it expects it, all of it or nothing, with the folders on the way. False: it
/// cannot be, and that has been told.
bool write_plain_file(std::string_view library, const std::string& from, const std::string& to);

/// The key=value lines of another library's configuration file. Values from the environment come first.
class Settings {
 public:
  /// `prefix`: of the keys in the environment ("VELOC_"): VELOC_SCRATCH for scratch. `uppercase`: keys are said so.
  Settings(std::string library, std::string prefix) : library_(std::move(library)), prefix_(std::move(prefix)) {}

  /// Reads a file; false if it cannot be read. '#' and ';' begin comments, "[section]" lines are skipped. The keys of a
  /// line of several pairs ("STORE=/ssd GROUP=NODE") belong to its first one, and are left to lines().
  bool read(const std::string& path);
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  void add_line(std::vector<std::pair<std::string, std::string>> pairs) { lines_.push_back(std::move(pairs)); }

  std::string text(const std::string& key, const std::string& otherwise = {}) const;
  /// What is no number is told, and counts as not said.
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  const std::vector<std::vector<std::pair<std::string, std::string>>>& lines() const { return lines_; }

  /// Tells of each key that is none of `known`, and of those that `without_meaning` says have none here.
  void tell_of_others(const std::vector<std::string_view>& known,
                      const std::map<std::string_view, std::string_view>& without_meaning) const;

 private:
  const std::string* find(const std::string& key) const;

  const std::string library_, prefix_;
  std::map<std::string, std::string> values_;
  std::vector<std::vector<std::pair<std::string, std::string>>> lines_;
};

/// The pairs of a line "A=1 B=2"; blanks around '=' may be there. Empty: it has none.
std::vector<std::pair<std::string, std::string>> pairs_of(std::string_view line);

}  // namespace varve::peers
