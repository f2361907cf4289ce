#include "varve/checkpoint_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/guarded.h"
#include "core/sync.h"
#include "reader/stored_variables.h"
#include "reader/variable_reader.h"
#include "service/location.h"
#include "store/catalog.h"

namespace varve {

namespace {
constexpr size_t kThreadsMax = 256;

CheckpointVariable described(const StoredVariable& variable) {
  CheckpointVariable told{variable.name, variable.type, variable.one_array.ok(), {}, 0, {}};
  if (told.is_one_array) {
    told.cells = variable.shape;
    told.bytes = array_bytes(told.cells, told.type.bytes).value_or(0);
  }
  for (const StoredPart& part : variable.parts) {
    told.parts.push_back({part.rank, part.shape, part.global_shape, part.global_offset,
                          array_bytes(part.shape, part.type.bytes).value_or(0)});
  }
  return told;
}

size_t thread_count(const CheckpointReaderOptions& options) {
  return std::clamp<size_t>(options.threads.value_or(static_cast<uint32_t>(processor_count())), 1, kThreadsMax);
}

/// What is to be read: of the whole array, or of one rank's.
struct WantedCells {
  const StoredVariable* variable = nullptr;
  const StoredPart* part = nullptr;  ///< null: of the whole
  CellBox box;
  ElementType type() const { return part != nullptr ? part->type : variable->type; }
};
}  // namespace

/// The public face of a StoredVariables and a VariableReader. What other libraries throw, and memory that is lacking,
/// end here.
class CheckpointReader::Impl {
 public:
  static Result<std::unique_ptr<Impl>> open(std::string_view location, std::string_view set,
                                            const CheckpointReaderOptions& options) {
    auto impl = std::make_unique<Impl>();
    const ReachOptions reach{options.key_file.value_or(""), options.s3_endpoint.value_or("")};
    VARVE_ASSIGN(impl->place_, open_location(location, {.reach = reach}));
    VARVE_ASSIGN(impl->store_, open_store(*impl->place_));
    const Catalog catalog(*impl->store_);
    VARVE_ASSIGN(const SetName name, catalog.resolve(set));
    VARVE_ASSIGN(const SetRecord record, catalog.read(name));
    Result<StoredVariables> variables = StoredVariables::read(*impl->store_, record);
    if (!variables.ok()) return catalog.unless_dropped(name, variables.status());
    impl->variables_ = std::move(*variables);
    impl->told_.resize(impl->variables_.count());
    impl->is_told_.resize(impl->variables_.count());
    impl->set_ = name.to_string();
    impl->reader_.emplace(*impl->store_, impl->variables_, thread_count(options));
    return impl;
  }

  const std::string& set() const { return set_; }
  const StoredVariables& variables() const { return variables_; }
  const std::vector<CheckpointVariable>& told() {
    const Status told = run_guarded([&] {
      for (const StoredVariable& variable : variables_.all()) tell(variable);
      return Status();
    });
    told.ignore("there is no memory to say what they are, and there they stay");
    return told_;
  }

  Result<const CheckpointVariable*> told(std::string_view name) {
    return run_guarded([&]() -> Result<const CheckpointVariable*> {
      VARVE_ASSIGN(const StoredVariable* const found, variables_.get(name));
      return &tell(*found);
    });
  }

  Result<WantedCells> find(std::string_view name, std::optional<uint32_t> rank, const ArraySection* box) const {
    WantedCells wanted;
    VARVE_ASSIGN(wanted.variable, variables_.get(name));
    if (rank) {
      VARVE_ASSIGN(wanted.part, variables_.part_of(*wanted.variable, *rank));
    } else {
      VARVE_TRY(wanted.variable->one_array);
    }
    if (box != nullptr) {
      wanted.box = {box->offset, box->cells};
    } else {
      const std::vector<uint64_t>& shape = rank ? wanted.part->shape : wanted.variable->shape;
      wanted.box = {std::vector<uint64_t>(shape.size(), 0), shape};
    }
    return wanted;
  }

  Status check(const WantedCells& wanted) const {
    return wanted.part != nullptr ? reader_->check_part(*wanted.variable, *wanted.part, wanted.box)
                                  : reader_->check(*wanted.variable, wanted.box);
  }

  Status read(const WantedCells& wanted, std::span<std::byte> into) {
    return wanted.part != nullptr ? reader_->read_part(*wanted.variable, *wanted.part, wanted.box, into)
                                  : reader_->read(*wanted.variable, wanted.box, into);
  }

  Status read(std::string_view name, std::optional<uint32_t> rank, const ArraySection* box, std::span<std::byte> into) {
    return run_guarded([&]() -> Status {
      VARVE_ASSIGN(const WantedCells wanted, find(name, rank, box));
      return read(wanted, into);
    });
  }

 private:
  /// Once each: users have pointers to them.
  const CheckpointVariable& tell(const StoredVariable& variable) {
    const size_t at = variables_.ordinal_of(variable);
    if (!is_told_[at]) told_[at] = described(variable);
    is_told_[at] = true;
    return told_[at];
  }

  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<Store> store_;
  StoredVariables variables_;
  std::vector<CheckpointVariable> told_;
  std::vector<bool> is_told_;
  std::string set_;
  std::optional<VariableReader> reader_;
};

CheckpointReader::CheckpointReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

Result<CheckpointReader> CheckpointReader::open(std::string_view store, std::string_view set,
                                                CheckpointReaderOptions options) {
  return run_guarded([&]() -> Result<CheckpointReader> {
    VARVE_ASSIGN(std::unique_ptr<Impl> impl, Impl::open(store, set, options));
    return CheckpointReader(std::move(impl));
  });
}

const std::string& CheckpointReader::set() const { return impl_->set(); }
uint64_t CheckpointReader::step() const { return impl_->variables().set().step; }
uint32_t CheckpointReader::rank_count() const { return impl_->variables().rank_count(); }
bool CheckpointReader::has_all_ranks() const { return impl_->variables().has_all_ranks(); }
const std::vector<CheckpointVariable>& CheckpointReader::variables() const { return impl_->told(); }

Result<const CheckpointVariable*> CheckpointReader::variable(std::string_view name) const { return impl_->told(name); }

Status CheckpointReader::read(std::string_view name, std::span<std::byte> into) {
  return impl_->read(name, std::nullopt, nullptr, into);
}

Status CheckpointReader::read(std::string_view name, const ArraySection& box, std::span<std::byte> into) {
  return impl_->read(name, std::nullopt, &box, into);
}

Status CheckpointReader::read_rank(std::string_view name, uint32_t rank, std::span<std::byte> into) {
  return impl_->read(name, rank, nullptr, into);
}

Status CheckpointReader::read_rank(std::string_view name, uint32_t rank, const ArraySection& box,
                                   std::span<std::byte> into) {
  return impl_->read(name, rank, &box, into);
}

Status CheckpointReader::read_typed(std::string_view name, std::optional<uint32_t> rank,
                                    const std::optional<ArraySection>& box, ElementType type,
                                    const std::function<std::span<std::byte>(uint64_t count)>& make_room) {
  return run_guarded([&]() -> Status {
    VARVE_ASSIGN(const WantedCells wanted, impl_->find(name, rank, box ? &*box : nullptr));
    if (wanted.type() != type) {
      return Status::invalid_argument(
          fmt::format("it is {} in the set, but asked for as {}", wanted.type().name(), type.name()),
          fmt::format("variable '{}'", name));
    }
    VARVE_TRY(impl_->check(wanted));
    return impl_->read(wanted, make_room(wanted.box.cell_count()));
  });
}

}  // namespace varve
