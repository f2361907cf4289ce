#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "core/bytes.h"
#include "format/image.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

/// Which bytes of a rank's files are numbers that the program has in the other byte order; they are turned on the way.
class ByteSwaps {
 public:
  /// Reads bytes as they lie in the files.
  using Read = std::function<Status(uint64_t offset, MutableByteSpan into)>;

  /// These bytes, apart from all others, are numbers of so many bytes each.
  void add(const Extent& numbers, uint32_t number_bytes);
  bool empty() const { return arrays_.empty(); }

  /// Puts bytes of the files where they belong once their numbers are turned: a byte alone, too.
  void put(uint64_t offset, ByteSpan bytes, ImageTarget& target) const;
  /// What `read` gives, with all numbers turned, also those of which only a part is asked for.
  Status read(uint64_t offset, MutableByteSpan into, const Read& read) const;

 private:
  struct Array {
    uint64_t begin = 0, end = 0;
    uint32_t number_bytes = 1;
  };
  /// The first array that ends behind this byte; null: there is none.
  const Array* array_at(uint64_t offset) const;

  std::map<uint64_t, Array> arrays_;  // by their end
};

}  // namespace varve
