#include "layout/torch_pickle.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "layout/layout.h"

namespace varve {
namespace {

/// pickletools.py has what each of them does.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersid = 'Q',
  kReduce = 'R',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

/// Values refer to each other by number, so that a pickle may hold itself.
using ValueId = uint32_t;
constexpr ValueId kByPosition = UINT32_MAX;   ///< instead of a key: the part's place among the others
constexpr ValueId kInPlace = UINT32_MAX - 1;  ///< instead of a key: the part's parts are the whole's
constexpr size_t kDepthMax = 64;
constexpr size_t kKeyBytesMax = 1000;
constexpr size_t kStorageKeyBytesMax = 100;
constexpr size_t kNamesBytesMax = 64_MiB;

struct Part {
  ValueId key;
  ValueId value;
};

struct Value {
  enum class Kind : uint8_t { other, integer, text, global, tuple, object, storage, tensor };
  Kind kind = Kind::other;
  int64_t number = 0;
  std::string_view text{};    ///< of the pickle; of a global its name, of a storage its key
  std::vector<Part> parts{};  ///< of a tensor: with what it is made
};

class PickleMachine {
 public:
  explicit PickleMachine(ByteSpan pickle) : in_(pickle) {}

  /// The value that the pickle is; an error if it is not understood.
  Result<ValueId> run() {
    for (size_t step = 0; step < kPickleStepsMax; ++step) {
      VARVE_ASSIGN(const uint8_t opcode, in_.u8());
      if (opcode == kStop) return pop();
      VARVE_TRY(obey(opcode));
    }
    return Status::resource_limit("a pickle is too long");
  }

  /// Where the pickle has ended.
  size_t position() const { return in_.position(); }
  const Value& value(ValueId id) const { return values_[id]; }
  size_t value_count() const { return values_.size(); }
  /// All storages that were named.
  const std::vector<ValueId>& storages() const { return storages_; }

 private:
  using Kind = Value::Kind;
  static Status broken() { return Status::unsupported("a pickle that cannot be read"); }

  Status obey(uint8_t opcode) {
    switch (opcode) {
      case kProto: return in_.u8().status();
      case kFrame: return in_.le64().status();
      case kMark: marks_.push_back(stack_.size()); return {};
      case kPop: return pop().status();
      case kPopMark: return pop_to_mark();
      case kDup: return stack_.empty() ? broken() : push_again(stack_.back());
      case kNone:
      case kNewTrue:
      case kNewFalse: return push({});
      case kBinFloat: VARVE_TRY(in_.le64().status()); return push({});
      case kBinInt: return push_integer<uint32_t>(in_.le32());
      case kBinInt1: return push_integer<uint8_t>(in_.u8());
      case kBinInt2: return push_integer<uint16_t>(in_.le16());
      case kLong1: return push_long();
      case kShortBinString:
      case kShortBinBytes:
      case kShortBinUnicode: return push_text<uint8_t>(in_.u8());
      case kBinBytes:
      case kBinUnicode: return push_text<uint32_t>(in_.le32());
      case kEmptyList:
      case kEmptyDict:
      case kEmptySet: return push({.kind = Kind::object});
      case kEmptyTuple: return push({.kind = Kind::tuple});
      case kTuple1: return push_tuple(1);
      case kTuple2: return push_tuple(2);
      case kTuple3: return push_tuple(3);
      default: return obey_more(opcode);
    }
  }

  Status obey_more(uint8_t opcode) {
    switch (opcode) {
      case kTuple: return push_marked(Kind::tuple, false);
      case kList:
      case kFrozenSet: return push_marked(Kind::object, false);
      case kDict: return push_marked(Kind::object, true);
      case kAppend: return add_parts(1, false);
      case kSetItem: return add_parts(2, true);
      case kAppends:
      case kAddItems:
      case kSetItems: {
        VARVE_ASSIGN(const size_t count, take_mark());
        return add_parts(count, opcode == kSetItems);
      }
      case kBinPut: return put<uint8_t>(in_.u8());
      case kLongBinPut: return put<uint32_t>(in_.le32());
      case kMemoize: return put<uint32_t>(static_cast<uint32_t>(memo_.size()));
      case kBinGet: return get<uint8_t>(in_.u8());
      case kLongBinGet: return get<uint32_t>(in_.le32());
      case kGlobal: return push_global();
      case kStackGlobal: return push_global_of_stack();
      case kBinPersid: return push_storage();
      case kReduce: return call(2);
      case kNewObj: return call(2);
      case kNewObjEx: return call(3);
      case kBuild: return build();
      default: return broken();
    }
  }

  Status push_again(ValueId id) {
    stack_.push_back(id);
    return {};
  }
  Status push(Value value) {
    values_.push_back(std::move(value));
    return push_again(static_cast<ValueId>(values_.size() - 1));
  }

  /// Never what lies below the last mark.
  size_t above_mark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Result<ValueId> pop() {
    if (above_mark() == 0) return broken();
    const ValueId top = stack_.back();
    stack_.pop_back();
    return top;
  }
  /// Forgets the last mark, and returns how many values lie above it.
  Result<size_t> take_mark() {
    if (marks_.empty()) return broken();
    const size_t count = above_mark();
    marks_.pop_back();
    return count;
  }
  Status pop_to_mark() {
    VARVE_ASSIGN(const size_t count, take_mark());
    stack_.resize(stack_.size() - count);
    return {};
  }

  template <class Number>
  Status push_integer(Result<Number> read) {
    VARVE_ASSIGN(const Number number, std::move(read));
    // Only those of four bytes have a sign.
    const int64_t value = sizeof(Number) == 4 ? int64_t{static_cast<int32_t>(number)} : static_cast<int64_t>(number);
    return push({.kind = Kind::integer, .number = value});
  }
  Status push_long() {
    VARVE_ASSIGN(const uint8_t count, in_.u8());
    VARVE_ASSIGN(const ByteSpan raw, in_.bytes(count));
    if (count > sizeof(uint64_t)) return push({});
    uint64_t number = count > 0 && (raw.back() & std::byte{0x80}) != std::byte{0} ? UINT64_MAX : 0;
    for (size_t i = count; i-- > 0;) number = number << 8 | static_cast<uint8_t>(raw[i]);
    return push({.kind = Kind::integer, .number = static_cast<int64_t>(number)});
  }
  template <class Number>
  Status push_text(Result<Number> read) {
    VARVE_ASSIGN(const Number count, std::move(read));
    VARVE_ASSIGN(const ByteSpan raw, in_.bytes(count));
    return push({.kind = Kind::text, .text = as_text(raw)});
  }

  Result<std::string_view> read_line() {
    const size_t begin = in_.position();
    uint8_t next = 0;
    ByteReader ahead = in_;
    do {
      VARVE_ASSIGN(next, ahead.u8());
    } while (next != '\n');
    VARVE_ASSIGN(const ByteSpan line, in_.bytes(ahead.position() - begin));
    return as_text(line.first(line.size() - 1));
  }
  Status push_global() {
    VARVE_TRY(read_line().status());  // the module
    VARVE_ASSIGN(const std::string_view name, read_line());
    return push({.kind = Kind::global, .text = name});
  }
  Status push_global_of_stack() {
    VARVE_ASSIGN(const ValueId name, pop());
    VARVE_TRY(pop().status());
    return push({.kind = Kind::global, .text = values_[name].text});
  }

  /// Takes the uppermost `count` values off the stack, and makes them parts of a value: by turns keys and what they
  /// lead to, or by position.
  Status move_parts(size_t count, bool keyed, Value& whole) {
    if (count > above_mark() || (keyed && count % 2 != 0)) return broken();
    const size_t first = stack_.size() - count;
    for (size_t i = first; i < stack_.size(); i += keyed ? 2 : 1)
      whole.parts.push_back(keyed ? Part{stack_[i], stack_[i + 1]} : Part{kByPosition, stack_[i]});
    stack_.resize(first);
    return {};
  }
  Status push_tuple(size_t count) {
    Value tuple{.kind = Kind::tuple};
    VARVE_TRY(move_parts(count, false, tuple));
    return push(std::move(tuple));
  }
  Status push_marked(Kind kind, bool keyed) {
    if (marks_.empty()) return broken();
    Value made{.kind = kind};
    const size_t count = above_mark();
    VARVE_TRY(move_parts(count, keyed, made));
    marks_.pop_back();
    return push(std::move(made));
  }
  Status add_parts(size_t count, bool keyed) {
    if (count >= above_mark()) return broken();
    return move_parts(count, keyed, values_[stack_[stack_.size() - count - 1]]);
  }

  template <class Number>
  Status put(Result<Number> read) {
    VARVE_ASSIGN(const Number index, std::move(read));
    if (above_mark() == 0) return broken();
    memo_[index] = stack_.back();
    return {};
  }
  template <class Number>
  Status get(Result<Number> read) {
    VARVE_ASSIGN(const Number index, std::move(read));
    const auto found = memo_.find(index);
    return found == memo_.end() ? broken() : push_again(found->second);
  }

  /// ('storage', torch.FloatStorage, '0', 'cpu', 1000)
  Status push_storage() {
    VARVE_ASSIGN(const ValueId id, pop());
    const std::vector<Part>& parts = values_[id].parts;
    if (parts.size() < 3 || values_[parts[2].value].kind != Kind::text) return push({});
    if (values_[parts[2].value].text.size() > kStorageKeyBytesMax) return broken();
    Value storage{.kind = Kind::storage, .text = values_[parts[2].value].text};
    storage.parts = {parts[1]};
    VARVE_TRY(push(std::move(storage)));
    storages_.push_back(stack_.back());
    return {};
  }

  /// What torch makes of tensors is known; of any other function or class, what it is given are the object's parts.
  Status call(size_t operand_count) {
    if (above_mark() < operand_count) return broken();
    const ValueId* const operands = stack_.data() + (stack_.size() - operand_count);
    const std::string_view name = values_[operands[0]].text;
    const ValueId arguments = operands[1];
    const std::vector<Part>& given = values_[arguments].parts;
    Value made{.kind = Kind::object};
    std::optional<ValueId> same;
    if (name == "_rebuild_tensor_v2" || name == "_rebuild_tensor_v3" || name == "_rebuild_tensor") {
      made.kind = Kind::tensor;
      made.parts = {Part{kInPlace, arguments}};
    } else if (name.starts_with("_rebuild_parameter") && !given.empty()) {
      same = given[0].value;
    } else {
      made.parts = {Part{kInPlace, arguments}};
    }
    stack_.resize(stack_.size() - operand_count);
    return same ? push_again(*same) : push(std::move(made));
  }

  Status build() {
    VARVE_ASSIGN(const ValueId state, pop());
    if (above_mark() == 0) return broken();
    Value& object = values_[stack_.back()];
    if (object.kind == Kind::object) object.parts.push_back({kInPlace, state});
    return {};
  }

  ByteReader in_;
  std::vector<Value> values_;
  std::vector<ValueId> stack_;
  std::vector<size_t> marks_;  ///< how high the stack was
  std::unordered_map<uint32_t, ValueId> memo_;
  std::vector<ValueId> storages_;
};

/// Walks from the pickle's value to its tensors, and names their storages by the way.
class StorageNamer {
 public:
  StorageNamer(const PickleMachine& machine, std::map<std::string, TorchStorage>& storages, ByteOrder order)
      : machine_(machine), storages_(storages), order_(order) {}

  /// Visits each value once, in the order in which it is written.
  void name_all(ValueId root) {
    trail_.push_back({0, root, kInPlace, 0, 0});
    std::vector<uint32_t> waiting = {0};
    std::vector<bool> seen(machine_.value_count());
    while (!waiting.empty()) {
      const uint32_t here = waiting.back();
      waiting.pop_back();
      const Value& value = machine_.value(trail_[here].value);
      if (seen[trail_[here].value] || trail_[here].depth > kDepthMax) continue;
      seen[trail_[here].value] = true;
      if (value.kind == Value::Kind::tensor) {
        name_tensor(value, here);
        continue;
      }
      if (value.kind == Value::Kind::storage) {
        name_storage(value, here);
        continue;
      }
      const auto first = static_cast<uint32_t>(trail_.size());
      for (uint32_t i = 0; i < value.parts.size(); ++i)
        trail_.push_back({here, value.parts[i].value, value.parts[i].key, i, trail_[here].depth + 1});
      for (auto next = static_cast<uint32_t>(trail_.size()); next-- > first;) waiting.push_back(next);
    }
  }

 private:
  /// How one came to a value.
  struct Step {
    uint32_t from;  ///< in trail_
    ValueId value;
    ValueId key;
    uint32_t position;
    size_t depth;
  };

  std::string own_name(const Step& step) const {
    if (step.key != kByPosition) {
      const Value& key = machine_.value(step.key);
      const bool usable = !key.text.empty() && key.text.size() <= kKeyBytesMax && key.text.find('\0') == key.text.npos;
      if (key.kind == Value::Kind::text && usable) return std::string(key.text);
      if (key.kind == Value::Kind::integer) return std::to_string(key.number);
    }
    return std::to_string(step.position);
  }

  std::string path(uint32_t at) const {
    std::string path;
    for (; at != 0; at = trail_[at].from) {
      if (trail_[at].key != kInPlace) path.insert(0, "/" + own_name(trail_[at]));
    }
    return path.empty() ? "/tensor" : path;
  }

  /// The storage that is meant, if it has no name yet.
  TorchStorage* nameless(const Value& storage) {
    const auto found = storages_.find(std::string(storage.text));
    return found != storages_.end() && found->second.name.empty() ? &found->second : nullptr;
  }

  void give_name(TorchStorage& storage, uint32_t at) {
    if (names_left_ == 0) return;
    std::string name = path(at);
    names_left_ -= std::min(names_left_, name.size());
    storage.name = std::move(name);
  }

  void name_storage(const Value& storage, uint32_t at) {
    if (TorchStorage* const nameless_one = nameless(storage)) give_name(*nameless_one, at);
  }

  /// (storage, offset, size, stride, ...); in version 3 the type is the seventh.
  void name_tensor(const Value& tensor, uint32_t at) {
    const std::vector<Part>& made_of = machine_.value(tensor.parts[0].value).parts;
    if (made_of.size() < 4) return;
    const Value& of = machine_.value(made_of[0].value);
    if (of.kind != Value::Kind::storage) return;
    TorchStorage* const storage = nameless(of);
    if (storage == nullptr) return;
    give_name(*storage, at);
    constexpr size_t type_position = 6;
    if (!storage->type && made_of.size() > type_position)
      storage->type = named_array_type(machine_.value(made_of[type_position].value).text, order_);
    if (machine_.value(made_of[1].value).number == 0)
      storage->shape = dense_shape(machine_.value(made_of[2].value), machine_.value(made_of[3].value));
  }

  /// The shape of a tensor whose elements lie row by row.
  std::optional<std::vector<uint64_t>> dense_shape(const Value& size, const Value& stride) const {
    std::vector<uint64_t> shape;
    if (size.parts.size() != stride.parts.size() || size.parts.size() >= kDimensionsMax) return std::nullopt;
    for (const Part& extent : size.parts) {
      const Value& number = machine_.value(extent.value);
      if (number.kind != Value::Kind::integer || number.number < 0) return std::nullopt;
      shape.push_back(static_cast<uint64_t>(number.number));
    }
    uint64_t dense = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      const auto step = static_cast<uint64_t>(machine_.value(stride.parts[d].value).number);
      if (shape[d] > 1 && step != dense) return std::nullopt;
      if (__builtin_mul_overflow(dense, shape[d], &dense)) return std::nullopt;
    }
    return shape;
  }

  const PickleMachine& machine_;
  std::map<std::string, TorchStorage>& storages_;
  const ByteOrder order_;
  std::vector<Step> trail_;
  size_t names_left_ = kNamesBytesMax;
};

/// By the class of a storage: "FloatStorage". That of the newest kind says nothing.
std::optional<ArrayType> storage_class_type(std::string_view name, ByteOrder order) {
  struct Class {
    std::string_view name, type;
  };
  static constexpr std::array<Class, 15> classes{{{"DoubleStorage", "float64"},
                                                  {"FloatStorage", "float32"},
                                                  {"HalfStorage", "float16"},
                                                  {"BFloat16Storage", "bfloat16"},
                                                  {"LongStorage", "int64"},
                                                  {"IntStorage", "int32"},
                                                  {"ShortStorage", "int16"},
                                                  {"CharStorage", "int8"},
                                                  {"ByteStorage", "uint8"},
                                                  {"BoolStorage", "bool"},
                                                  {"ComplexDoubleStorage", "complex128"},
                                                  {"ComplexFloatStorage", "complex64"},
                                                  {"QInt8Storage", "int8"},
                                                  {"QUInt8Storage", "uint8"},
                                                  {"QInt32Storage", "int32"}}};
  for (const Class& known : classes) {
    if (known.name == name) return named_array_type(known.type, order);
  }
  return std::nullopt;
}

/// `root`: what the pickle is, if it was understood.
std::map<std::string, TorchStorage> storages_of(const PickleMachine& machine, const Result<ValueId>& root,
                                                ByteOrder order) {
  std::map<std::string, TorchStorage> storages;
  for (const ValueId id : machine.storages()) {
    const Value& storage = machine.value(id);
    const std::string_view storage_class = machine.value(storage.parts[0].value).text;
    storages.try_emplace(std::string(storage.text),
                         TorchStorage{storage_class_type(storage_class, order), {}, std::nullopt});
  }
  if (root.ok()) StorageNamer(machine, storages, order).name_all(*root);
  return storages;
}

/// The magic number of the first pickle, a number of ten bytes, and its end.
constexpr std::string_view kStreamMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
constexpr size_t kStreamMagicAt = 2;  // after the version of pickles
constexpr int64_t kStreamVersion = 1001;

bool has_member(const PickleMachine& machine, ValueId root, std::string_view name) {
  const std::vector<Part>& parts = machine.value(root).parts;
  return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.key != kByPosition && part.key != kInPlace && machine.value(part.key).text == name;
  });
}

}  // namespace

std::map<std::string, TorchStorage> read_torch_pickle(ByteSpan pickle, ByteOrder order) {
  if (pickle.size() > kPickleBytesMax) return {};
  PickleMachine machine(pickle);
  const Result<ValueId> root = machine.run();
  return storages_of(machine, root, order);
}

Variable storage_variable(std::string name, const TorchStorage& storage, Extent place) {
  if (!storage.type) return bytes_variable(std::move(name), place);
  std::optional<Variable> array;
  if (storage.shape) array = plain_array(name, *storage.type, *storage.shape, place);
  if (!array) array = plain_array(name, *storage.type, {place.bytes / storage.type->bytes()}, place);
  return array ? std::move(*array) : bytes_variable(std::move(name), place);
}

bool begins_torch_stream(ByteSpan bytes) {
  return bytes.size() >= kStreamMagicAt + kStreamMagic.size() && bytes[0] == std::byte{kProto} &&
         as_text(bytes.subspan(kStreamMagicAt, kStreamMagic.size())) == kStreamMagic;
}

std::optional<TorchStream> read_torch_stream(ByteSpan begin) {
  if (!begins_torch_stream(begin) || begin.size() > kPickleBytesMax) return std::nullopt;
  TorchStream stream;
  stream.data_begin = kStreamMagicAt + kStreamMagic.size();
  // The next pickle, of which `take` says whether it is what is wanted.
  const auto next = [&](const auto& take) {
    PickleMachine machine(begin.subspan(stream.data_begin));
    const Result<ValueId> root = machine.run();
    if (!root.ok() || !take(machine, *root)) return false;
    stream.data_begin += machine.position();
    return true;
  };
  const auto take_version = [](const PickleMachine& machine, ValueId root) {
    return machine.value(root).number == kStreamVersion;
  };
  // Whatever it says: torch turns numbers round when it writes on big-endian machines.
  const auto take_machine = [](const PickleMachine& machine, ValueId root) {
    return has_member(machine, root, "little_endian");
  };
  const auto take_storages = [&](const PickleMachine& machine, ValueId root) {
    stream.storages = storages_of(machine, root, ByteOrder::little);
    return true;
  };
  const auto take_keys = [&](const PickleMachine& machine, ValueId root) {
    for (const Part& key : machine.value(root).parts) stream.keys.emplace_back(machine.value(key.value).text);
    return true;
  };
  const bool understood = next(take_version) && next(take_machine) && next(take_storages) && next(take_keys);
  return understood ? std::optional(std::move(stream)) : std::nullopt;
}

}  // namespace varve
