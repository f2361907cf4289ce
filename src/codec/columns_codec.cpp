#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "codec/registry.h"

namespace varve {
namespace {

constexpr size_t kWordBytesMax = 64;
constexpr size_t kWordsMax = 64;  ///< of a line
constexpr size_t kBlanksMax = 255;
/// Fewer lines of one kind are no table.
constexpr size_t kLinesMin = 16;
constexpr std::byte kBlank{' '}, kNewline{'\n'};

struct Word {
  uint32_t begin = 0;
  uint8_t bytes = 0, blanks = 0;  ///< and how many blanks are before it
};

/// Lines of as many words each, or bytes that stay as they are.
struct Segment {
  size_t begin = 0, bytes = 0;  ///< in the text
  size_t lines = 0;             ///< 0: it stays as it is
  size_t first_word = 0, first_line = 0;
  std::vector<uint8_t> widths;  ///< of the columns
  bool is_table() const { return lines > 0; }
};

/// Takes a text apart: lines that follow each other and have as many words are a table.
class TextSplitter {
 public:
  explicit TextSplitter(ByteSpan text) : text_(text) {}

  void run() {
    for (size_t begin = 0; begin < text_.size();) {
      const auto newline = std::find(text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.end(), kNewline);
      const auto end = static_cast<size_t>(newline - text_.begin());
      const size_t next = newline == text_.end() ? end : end + 1;
      const size_t first_word = words_.size();
      if (newline == text_.end() || !take_line(begin, end)) {
        words_.resize(first_word);
        end_table();
        add_plain(begin, next - begin);
      } else {
        add_to_table(begin, next - begin, first_word);
      }
      begin = next;
    }
    end_table();
  }

  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Word>& words() const { return words_; }
  const std::vector<uint8_t>& trailing() const { return trailing_; }

 private:
  /// Its words, and the blanks behind them. False: it is no line of a table.
  bool take_line(size_t begin, size_t end) {
    const size_t first_word = words_.size();
    size_t at = begin;
    for (;;) {
      const size_t blanks_begin = at;
      while (at < end && text_[at] == kBlank) ++at;
      const size_t blanks = at - blanks_begin;
      if (blanks > kBlanksMax) return false;
      if (at == end) {
        if (words_.size() == first_word) return false;
        trailing_.push_back(static_cast<uint8_t>(blanks));
        return true;
      }
      const size_t word_begin = at;
      while (at < end && text_[at] != kBlank) ++at;
      if (at - word_begin > kWordBytesMax || words_.size() - first_word == kWordsMax) return false;
      words_.push_back(
          {static_cast<uint32_t>(word_begin), static_cast<uint8_t>(at - word_begin), static_cast<uint8_t>(blanks)});
    }
  }

  void add_to_table(size_t begin, size_t bytes, size_t first_word) {
    const size_t count = words_.size() - first_word;
    if (!table_ || table_->widths.size() != count) {
      end_table();
      table_ = Segment{.begin = begin, .first_word = first_word, .first_line = trailing_.size() - 1, .widths = {}};
      table_->widths.resize(count);
    }
    for (size_t i = 0; i < count; ++i) {
      table_->widths[i] = std::max(table_->widths[i], words_[first_word + i].bytes);
      word_bytes_ += words_[first_word + i].bytes;
    }
    table_->bytes += bytes;
    ++table_->lines;
  }

  /// What is too short, or would grow too much, is none.
  void end_table() {
    if (!table_) return;
    size_t width = 0;
    for (const uint8_t of_column : table_->widths) width += of_column;
    if (table_->lines >= kLinesMin && width * table_->lines <= 2 * word_bytes_) {
      segments_.push_back(std::move(*table_));
    } else {
      add_plain(table_->begin, table_->bytes);
    }
    table_.reset();
    word_bytes_ = 0;
  }

  void add_plain(size_t begin, size_t bytes) {
    if (bytes == 0) return;
    if (!segments_.empty() && !segments_.back().is_table()) {
      segments_.back().bytes += bytes;
    } else {
      segments_.push_back({.begin = begin, .bytes = bytes, .widths = {}});
    }
  }

  const ByteSpan text_;
  std::vector<Segment> segments_;
  std::vector<Word> words_;
  std::vector<uint8_t> trailing_;  ///< of each line that has been taken, the blanks behind its last word
  std::optional<Segment> table_;   ///< to which lines are added
  size_t word_bytes_ = 0;          ///< in it
};

/// Tables of numbers that were written as text (dumps of atoms, fields in ASCII): each column for itself, and of that
/// first the first characters of all lines, then the second ones, and so on. FORMAT.md, "columns".
class ColumnsCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::columns; }
  std::string_view name() const override { return "columns"; }
  bool applies_to(const PackShape& shape) const override { return shape.type.bytes == 1; }

  Status encode(ByteSpan in, const PackShape&, int level, ByteVector&, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("columns has no levels");
    if (in.size() > std::numeric_limits<uint32_t>::max()) return Status::invalid_argument("a pack is too large");
    TextSplitter text(in);
    text.run();
    ByteWriter writer(out);
    writer.varint(text.segments().size());
    for (const Segment& segment : text.segments()) {
      writer.varint(segment.widths.size());
      writer.varint(segment.is_table() ? segment.lines : segment.bytes);
      for (const uint8_t width : segment.widths) writer.u8(width);
    }
    for (const Segment& segment : text.segments()) {
      if (segment.is_table()) put_table(in, text, segment, out);
    }
    for (const Segment& segment : text.segments()) {
      if (!segment.is_table()) writer.bytes(in.subspan(segment.begin, segment.bytes));
    }
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (!params.empty()) return Status::corrupt("bad parameters");
    ByteReader reader(in);
    VARVE_ASSIGN(const uint64_t count, reader.count(/*bytes_min=*/2));
    std::vector<Table> segments(count);
    for (Table& segment : segments) {
      VARVE_ASSIGN(const uint64_t words, reader.varint());
      VARVE_ASSIGN(segment.lines, reader.varint());
      if (words > kWordsMax || segment.lines > out.size()) return Status::corrupt("a table is too large");
      VARVE_ASSIGN(segment.widths, reader.bytes(words));
    }
    TextBuilder text(out);
    // What stays as it is lies behind all tables.
    size_t tables_bytes = 0;
    ByteSpan tables = in.subspan(in.size() - reader.remaining());
    for (const Table& segment : segments) {
      tables_bytes += segment.bytes();
      if (tables_bytes > tables.size()) return Status::corrupt("tables end too soon");
    }
    ByteSpan plain = tables.subspan(tables_bytes);
    for (const Table& segment : segments) {
      if (segment.widths.empty()) {
        if (segment.lines > plain.size()) return Status::corrupt("the text ends too soon");
        VARVE_TRY(text.put(plain.first(segment.lines)));
        plain = plain.subspan(segment.lines);
      } else {
        VARVE_TRY(get_table(segment, tables.first(segment.bytes()), text));
        tables = tables.subspan(segment.bytes());
      }
    }
    return plain.empty() && text.is_full() ? Status() : Status::corrupt("the text has another size than it says");
  }

 private:
  /// What is read of a segment; without columns, so many bytes that stay as they are.
  struct Table {
    uint64_t lines = 0;
    ByteSpan widths;
    /// Fits: there are at most 64 columns of 255 characters, and lines of a pack.
    size_t bytes() const {
      if (widths.empty()) return 0;
      size_t of_line = 1;
      for (const std::byte width : widths) of_line += 1 + static_cast<size_t>(width);
      return of_line * lines;
    }
  };

  class TextBuilder {
   public:
    explicit TextBuilder(MutableByteSpan out) : out_(out) {}
    Status put(ByteSpan bytes) {
      if (bytes.size() > out_.size()) return too_long();
      std::copy(bytes.begin(), bytes.end(), out_.begin());
      out_ = out_.subspan(bytes.size());
      return {};
    }
    Status put(std::byte value, size_t count) {
      if (count > out_.size()) return too_long();
      std::fill_n(out_.begin(), count, value);
      out_ = out_.subspan(count);
      return {};
    }
    bool is_full() const { return out_.empty(); }

   private:
    static Status too_long() { return Status::corrupt("the text has another size than it says"); }
    MutableByteSpan out_;
  };

  static void put_table(ByteSpan in, const TextSplitter& text, const Segment& table, ByteVector& out) {
    const size_t columns = table.widths.size(), lines = table.lines;
    for (size_t column = 0; column < columns; ++column) {
      const size_t width = table.widths[column], at = out.size();
      out.resize(at + lines * (1 + width), kBlank);
      std::byte* const blanks = out.data() + at;
      std::byte* const characters = blanks + lines;
      const Word* word = text.words().data() + table.first_word + column;
      for (size_t line = 0; line < lines; ++line, word += columns) {
        blanks[line] = static_cast<std::byte>(word->blanks);
        const std::byte* const from = in.data() + word->begin;
        for (size_t i = 0; i < word->bytes; ++i) characters[i * lines + line] = from[i];
      }
    }
    const uint8_t* const trailing = text.trailing().data() + table.first_line;
    for (size_t line = 0; line < lines; ++line) out.push_back(static_cast<std::byte>(trailing[line]));
  }

  static Status get_table(const Table& table, ByteSpan bytes, TextBuilder& text) {
    const size_t lines = table.lines;
    struct Column {
      const std::byte* blanks;
      size_t width;
    };
    std::array<Column, kWordsMax> columns{};
    const std::byte* at = bytes.data();
    for (size_t i = 0; i < table.widths.size(); ++i) {
      columns[i] = {at, static_cast<size_t>(table.widths[i])};
      at += lines * (1 + columns[i].width);
    }
    std::array<std::byte, 255> word{};
    for (size_t line = 0; line < lines; ++line) {
      for (size_t i = 0; i < table.widths.size(); ++i) {
        const Column& column = columns[i];
        VARVE_TRY(text.put(kBlank, static_cast<size_t>(column.blanks[line])));
        size_t length = 0;
        for (const std::byte* next = column.blanks + lines + line; length < column.width; next += lines) {
          if (*next == kBlank) break;
          word[length++] = *next;
        }
        VARVE_TRY(text.put(ByteSpan(word).first(length)));
      }
      VARVE_TRY(text.put(kBlank, static_cast<size_t>(at[line])));
      VARVE_TRY(text.put(kNewline, 1));
    }
    return {};
  }
};

}  // namespace

const Codec& columns_codec() {
  static const ColumnsCodec codec;
  return codec;
}

}  // namespace varve
