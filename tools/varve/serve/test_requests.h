#pragma once

#include "service/protocol.h"

namespace varve {

inline UniqueId id_of(uint8_t first) {
  UniqueId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(first + i);
  return id;
}

/// A request with something in every field.
inline Request full_request(Message message) {
  Request request;
  request.message = message;
  request.again = true;
  request.number = 42;
  request.client = id_of(1);
  request.token = id_of(2);
  request.path = "arenas/x";
  request.to = "sets/y";
  request.handle = 300;
  request.offset = uint64_t{1} << 40;
  request.bytes = 4096;
  request.ranges = {{0, 10}, {uint64_t{1} << 50, 1}};
  request.identity = {1, uint64_t{1} << 63, -5};
  request.direct = request.replace = request.check_held = true;
  request.recode = "best";
  request.bytes_per_second = 1.5e9;
  request.prefix_count = 3;
  request.node = "n1";
  request.node_count = 4;
  request.failure = Status::busy("it changed", "", "wait");
  return request;
}

}  // namespace varve
