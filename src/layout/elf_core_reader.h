#pragma once

#include "layout/file_window.h"
#include "layout/layout.h"

namespace varve {

/// The layout of an ELF core dump (System V ABI, "Program Header"; core(5)), 32- or 64-bit, either byte order.
///
/// Each PT_LOAD segment with bytes in the file is a variable of BYTES. Its name stays the same in the next dump of the
/// program:
/// `/segment/r-x/libfoo.so+0x1000` if an NT_FILE note tells which file's bytes were mapped there, else
/// `/segment/rw-/anonymous-3`, the third one with these permissions in address order; a repeated name gets `#2`, `#3`,
/// …. Headers, notes and gaps are skeleton. corrupt: not a core dump, or cut off. resource_limit: too many segments.
Result<Layout> read_elf_core_layout(FileWindow& file);

}  // namespace varve
