#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varve::peers {

/// What is told to the user, with the name of the library that he knows.
void tell(std::string_view library, const std::string& what);

/// A path as a specification of levels has it.
std::string level_place(std::string path);

/// Copies a file to where whoever reads it expects it, all of it or nothing, with the folders on the way. False: it
/// cannot be, and that has been told.
bool write_plain_file(std::string_view library, const std::string& from, const std::string& to);

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// A key of a configuration file.
struct Key {
  enum Kind { text, number, flag, word, left_out };
  /// One of a line of several pairs has the line's first key before it: "STORE COUNT".
  std::string_view name;
  Kind kind = text;
  /// Of a word, those that there are, and first the one that counts where none is said: "async sync". Of what is left
  /// out, why.
  std::string_view about{};
};

/// How configuration files are written.
enum class Dialect {
  /// VELOC's: one pair a line; '#' and ';' begin comments at the start of a line and after a blank, except that ';'
  /// stays in `levels`, which it separates; "[section]" lines are skipped.
  ini,
  /// SCR's: '#' begins a comment, and values have what the environment says of $NAME and ${NAME}. The keys of a line of
  /// several pairs ("STORE=/ssd GROUP=NODE") belong to its first one, and are left to lines().
  scr
};

/// The key=value lines of another library's configuration file. Values from the environment come first, then those that
/// the program has set. A value that its key cannot have counts as not said.
class Settings {
 public:
  /// `prefix`: of the keys in the environment ("VELOC_"): VELOC_SCRATCH for scratch. `keys`: all that there are.
  Settings(std::string prefix, Dialect dialect, std::vector<Key> keys)
      : prefix_(std::move(prefix)), dialect_(dialect), keys_(std::move(keys)) {}

  /// Reads a file, in the place of one that was read before; false if it cannot be read.
  bool read(const std::string& path);
  /// What SCR_Config() does: "KEY=VALUE" sets, "KEY=" takes back what was set, and "STORE=/ssd COUNT=3" sets a line in
  /// the place of one that begins so; "KEY" and "STORE=/ssd COUNT" ask, and have the value if there is one.
  std::optional<std::string> configure(std::string_view line);

  std::string text(const std::string& key, const std::string& otherwise = {}) const;
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key) const;
  /// The lines of several pairs.
  std::vector<Pairs> lines() const;
  /// What such a line says of a key, and that as a number, a flag or a word.
  static std::string text(const Pairs& line, std::string_view key, const std::string& otherwise = {});
  static double number(const Pairs& line, std::string_view key, double otherwise);
  static bool flag(const Pairs& line, std::string_view key, bool otherwise);
  std::string word(const Pairs& line, std::string_view key) const;

  /// What is said and has no effect here, in words, each once: lines that say nothing, keys that are unknown or left
  /// out, values that are none of their keys.
  std::vector<std::string> without_effect() const;

 private:
  /// What one place says.
  struct Layer {
    std::map<std::string, std::string> values;
    std::vector<Pairs> lines;
  };

  const std::string* find(const std::string& key) const;
  const Key* key_called(const std::string& name) const;
  void take(Pairs pairs, Layer& layer) const;
  std::optional<std::string> ask(const Pairs& parent, const std::string& key) const;

  const std::string prefix_;
  const Dialect dialect_;
  const std::vector<Key> keys_;
  Layer set_, read_;  ///< by the program, and from the file
  std::vector<std::string> senseless_;
};

/// The pairs of a line "A=1 B=2"; blanks around '=' may be there, and a value may have '=' in it. Empty: it has none.
Pairs pairs_of(std::string_view line);

/// `text`, with what the environment says of each $NAME and ${NAME}, which is nothing where it does not know them.
std::string with_environment(std::string_view text);

}  // namespace varve::peers
