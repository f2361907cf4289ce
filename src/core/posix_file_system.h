#pragma once

#include <memory>
#include <string>

#include "core/file_system.h"
#include "core/process.h"

struct statfs;

namespace varve {

/// The File of an open regular file, for whom paths alone do not do. `path` is for messages; `direct` as in
/// CreateOptions.
std::unique_ptr<File> make_posix_file(std::string path, UniqueFd descriptor, bool direct);

/// FileSystem::rename_no_replace() by open folders (AT_FDCWD: the working one) and names in them. Returns `errno`; 0:
/// it has its new name.
int rename_no_replace_at(int from_folder, const char* from, int to_folder, const char* to);

/// The same where the file system has no such operation: the new name is a link before the old one goes.
int link_no_replace_at(int from_folder, const char* from, int to_folder, const char* to);

/// Whether that is a file system without a disk: tmpfs, ramfs or hugetlbfs.
bool lies_in_memory(const struct statfs& file_system);

}  // namespace varve
