#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "cli/session.h"
#include "core/quantity.h"
#include "level/store_level.h"
#include "store/remarks.h"
#include "store/verify.h"
#include "varve/status.h"

namespace varve::cli {

/// "2:05", "1:02:05": for what remains.
std::string format_clock(double seconds);
/// Local time and its zone, which may differ between summer and winter: "2024-05-01 12:30:59 CEST".
std::string format_time(int64_t seconds_since_1970);
/// "50x50"; "scalar" if empty.
std::string format_shape(const std::vector<uint64_t>& shape);
/// Of "80%" or "0.8". invalid_argument: it is not from 0 to 1.
Result<double> parse_share(const std::string& text);
/// "1 file", "3 files".
std::string format_count(uint64_t count, std::string_view singular, std::string_view plural);

/// `text` with control characters, bytes that are not UTF-8 and characters that reorder text written as escapes, so
/// that no name can play tricks on a terminal.
std::string escape_text(std::string_view text);
/// The same with its line feeds as they are.
std::string escape_lines(std::string_view text);
/// A name for a person: as it is if it is plain, else escaped and in double quotes.
std::string quote_name(std::string_view name);

/// "run@7 copied to dir:/far: 1.20 MiB sent", a line.
std::string line_of(const LevelCopy& copy);

/// "pinned, best, converged": what is said of a set, but for its note.
std::string pin_and_tags_of(const SetRemarks& remarks);
/// The same, and the word "note" if it has one.
std::string words_of(const SetRemarks& remarks);

/// A table whose columns line up.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns);
  /// One cell a column. Cells are printed as they are: names go through quote_name() first.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// Title line and rows, each ended by a newline and begun by `indent`.
  std::string render(std::string_view indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// One damage, with whom it affects, for a person.
void print_damage(Session& session, const Damage& damage);
/// All of them, for a program.
Json damages_json(const VerifyReport& report);

}  // namespace varve::cli
