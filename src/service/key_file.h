#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "varve/status.h"

namespace varve {

/// What both sides of a connection over TCP know and nobody else.
using SharedKey = std::array<std::byte, 32>;

/// What a client calls its key by, so that a server with several knows which one it is; says nothing about the key.
std::string name_of_key(const SharedKey& key);
/// The key of a file: of its contents, without blanks at the end, so that it does not depend on how the key was
/// written. permission_denied: the file can be read by others than its owner, or belongs to another user than this one
/// or root. invalid_argument: it holds too little to be a secret (32 random bytes, or 64 random hexadecimal digits).
Result<SharedKey> read_key_file(const std::string& path);
/// Makes a file with a new key, which only its owner can read. already_exists: it is there.
Status make_key_file(const std::string& path);

}  // namespace varve
