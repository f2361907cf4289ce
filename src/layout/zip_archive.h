#pragma once

#include <string>
#include <vector>

#include "layout/file_window.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

/// One file in a zip archive.
struct ZipMember {
  std::string name;
  Extent stored;             ///< its bytes, as they lie in the archive
  bool is_plain = true;      ///< they are the file's own: neither compressed nor encrypted
  bool is_deflated = false;  ///< they are a stream of RFC 1951, of nothing that was encrypted
  uint64_t bytes = 0;        ///< of the file
  uint32_t crc32 = 0;        ///< of the file, as the archive says (gzip_crc32())
};

/// The members of a zip archive (APPNOTE.TXT 6.3.10), also of one larger than 4 GiB, in the order in which they lie in
/// it.
///
/// Names, sizes and places are those of the central directory; the headers in front of the members only say how long
/// they are themselves. Members do not overlap, and lie before the directory. corrupt: no such archive, one in several
/// files, or one with something in front of it; resource_limit: very many members.
Result<std::vector<ZipMember>> read_zip_members(FileWindow& file);

inline constexpr size_t kZipMembersMax = 100'000;

}  // namespace varve
