#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varve::peers {

/// What is told to the user once, with the name of the library that he knows.
void tell(std::string_view library, const std::string& what);

/// A path as a specification of levels has it.
std::string level_place(std::string path);

/// Copies a file to where whoever reads it expects it, all of it or nothing, with the folders on the way. False: it
/// cannot be, and that has been told.
bool write_plain_file(std::string_view library, const std::string& from, const std::string& to);

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// How configuration files are written.
enum class Dialect {
  /// VELOC's: one pair a line; '#' and ';' begin comments at the start of a line and after a blank, except that ';'
  /// stays in `levels`, which it separates; "[section]" lines are skipped.
  ini,
  /// SCR's: '#' begins a comment, and values have what the environment says of $NAME and ${NAME}. The keys of a line of
  /// several pairs ("STORE=/ssd GROUP=NODE") belong to its first one, and are left to lines().
  scr
};

/// The key=value lines of another library's configuration file. Values from the environment come first.
class Settings {
 public:
  /// `prefix`: of the keys in the environment ("VELOC_"): VELOC_SCRATCH for scratch.
  Settings(std::string library, std::string prefix, Dialect dialect)
      : library_(std::move(library)), prefix_(std::move(prefix)), dialect_(dialect) {}

  /// Reads a file; false if it cannot be read.
  bool read(const std::string& path);
  /// What SCR_Config() does: "KEY=VALUE" sets, "KEY=" takes back what was set, and "STORE=/ssd COUNT=3" sets a line in
  /// the place of one that begins so; "KEY" and "STORE=/ssd COUNT" ask, and have the value if there is one.
  std::optional<std::string> configure(std::string_view line);

  std::string text(const std::string& key, const std::string& otherwise = {}) const;
  /// What is no number is told, and counts as not said.
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  const std::vector<Pairs>& lines() const { return lines_; }

  /// Tells of each key that is none of `known`, and of those that `without_meaning` says have none here.
  void tell_of_others(const std::vector<std::string_view>& known,
                      const std::map<std::string_view, std::string_view>& without_meaning) const;

 private:
  const std::string* find(const std::string& key) const;
  void take(Pairs pairs);
  std::optional<std::string> ask(const Pairs& parent, const std::string& key) const;

  const std::string library_, prefix_;
  const Dialect dialect_;
  std::map<std::string, std::string> values_;
  std::vector<Pairs> lines_;
};

/// The pairs of a line "A=1 B=2"; blanks around '=' may be there, and a value may have '=' in it. Empty: it has none.
Pairs pairs_of(std::string_view line);

/// `text`, with what the environment says of each $NAME and ${NAME}, which is nothing where it does not know them.
std::string with_environment(std::string_view text);

}  // namespace varve::peers
