#pragma once

#include "service/protocol.h"

namespace varve {

inline UniqueId id_of(uint8_t first) {
  UniqueId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(first + i);
  return id;
}

/// Puts something into every field of a message: of numbers and ids, something else into each.
class FieldFiller {
 public:
  template <class... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }
  void text(std::string& value, size_t) { value = "arenas/" + std::to_string(++count_); }
  template <class Value>
  void list(std::vector<Value>& values, size_t) {
    values.resize(3);
    for (Value& value : values) one(value);
  }
  template <class Choice>
  void choice(Choice& value, Choice last) {
    value = last;
  }
  void failure(Status& value) { value = Status::busy("it changed", "", "wait"); }

 private:
  void one(uint64_t& value) { value = uint64_t{1} << (7 * ++count_ % 64); }
  void one(int64_t& value) { value = -5 - static_cast<int64_t>(++count_); }
  void one(bool& value) { value = true; }
  void one(double& value) { value = 1.5e9; }
  void one(UniqueId& value) { value = id_of(static_cast<uint8_t>(++count_)); }
  void one(std::string& value) { text(value, 0); }
  void one(Status& value) { failure(value); }
  template <class Group>
  void one(Group& group) {
    group.visit(*this);
  }

  size_t count_ = 0;
};

/// With something in every field; of a reply, those of one that is done.
template <class Fields>
Fields filled() {
  Fields fields;
  FieldFiller filler;
  filler(fields);
  return fields;
}

}  // namespace varve
