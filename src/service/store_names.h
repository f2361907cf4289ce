#pragma once

#include <string_view>

namespace varve {

/// Whether `path`, relative to a store's root, is of a form that the folder of a store has (FORMAT.md, "The folder of a
/// store"), or that of one of its folders ("" is the root): nothing else is served. Such a path has no "." or ".." and
/// cannot leave the folder by itself.
bool is_store_path(std::string_view path);

/// Whether `path` can be of any file below a folder: for tests.
bool is_plain_path(std::string_view path);

}  // namespace varve
