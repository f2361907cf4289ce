#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "layout/array_type.h"

namespace varve {

/// What torch.save() says of a storage, the bytes of one or several tensors.
struct TorchStorage {
  std::optional<ArrayType> type;
  /// Of the first tensor in it, by the keys that lead there: `/model/layer1.weight`, `/optimizer/state/0/exp_avg`.
  /// Empty: none was found.
  std::string name;
  /// Of that tensor, if it is all of the storage row by row; else nothing.
  std::optional<std::vector<uint64_t>> shape;
};

/// The storages that a pickle of torch.save() names, by their keys: the data of `ARCHIVE/data/KEY`.
///
/// Follows the pickle's machine (Python's pickletools) as far as it builds dictionaries, lists, tuples and tensors of
/// them; everything else is an object with parts. Nothing is called or executed. What is not understood ends it: the
/// storages so far have types, and no names. Time and memory are bounded by the limits below.
std::map<std::string, TorchStorage> read_torch_pickle(ByteSpan pickle, ByteOrder order);

/// A storage's bytes as the tensor that fills them, or as one row of elements, or as bytes.
Variable storage_variable(std::string name, const TorchStorage& storage, Extent place);

/// How torch.save() wrote a file before it made zip archives: pickles one after another, then the data of each storage
/// behind the number of its elements.
struct TorchStream {
  std::map<std::string, TorchStorage> storages;
  std::vector<std::string> keys;  ///< of the storages, in the order of their data
  uint64_t data_begin = 0;
};
bool begins_torch_stream(ByteSpan bytes);
/// By the begin of such a file, in the same bounds. Nothing: it is not understood, or its pickles do not end there.
std::optional<TorchStream> read_torch_stream(ByteSpan begin);

inline constexpr uint64_t kPickleBytesMax = 16_MiB;
inline constexpr size_t kPickleStepsMax = 1'000'000;

}  // namespace varve
