#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cli/array_file.h"
#include "cli/chosen_array.h"
#include "cli/command.h"
#include "cli/set_argument.h"
#include "cli/text.h"
#include "core/file_system.h"
#include "core/sync.h"
#include "core/unique_id.h"
#include "store/catalog.h"

namespace varve::cli {

namespace {
/// A file under another name, which is gone unless it was put in its place.
class DraftFile {
 public:
  explicit DraftFile(std::string path)
      : path_(std::move(path)), draft_(fmt::format("{}.{}.draft", path_, ::getpid())) {}
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;
  ~DraftFile() {
    if (made_) posix_file_system().remove(draft_).ignore("the failure that is told is another one");
  }

  Result<std::unique_ptr<ArrayFile>> create(ArrayFileKind kind) {
    Result<std::unique_ptr<ArrayFile>> file = create_array_file(kind, draft_);
    made_ = file.ok();
    return file;
  }
  Status put_in_place(bool replace) {
    FileSystem& files = posix_file_system();
    VARVE_TRY(replace ? files.rename(draft_, path_) : files.rename_no_replace(draft_, path_));
    made_ = false;
    return files.sync_directory(parent_path(path_));
  }

 private:
  const std::string path_, draft_;
  bool made_ = false;
};

Status is_there(const std::string& path) {
  return Status::already_exists("there is such a file", path, "name another one with --to, or give --force");
}

/// What a variable is called in an HDF5 file: its file is a group there, as are those of its own name.
std::string name_in_file(const ChosenArray& array, bool of_rank) {
  const StoredVariable& variable = array.variable();
  std::string name = variable.name;
  // Of a file, or of the folder that its files are in.
  const std::string& path = variable.parts.front().file->path;
  const size_t colon = name.find(":/");
  if (name.starts_with(path + ":")) {
    name[path.size()] = '/';
  } else if (colon != std::string::npos && path.starts_with(name.substr(0, colon) + "/")) {
    name.erase(colon, 1);
  }
  return of_rank && array.part()->rank >= 0 ? fmt::format("{}/rank-{:06}", name, array.part()->rank) : name;
}

/// Of parts of one rank, which box it is; empty if there is one.
std::string box_name(const StoredVariable& variable, const StoredPart& part) {
  const auto of_rank = [&](const StoredPart& other) { return other.rank == part.rank; };
  if (std::count_if(variable.parts.begin(), variable.parts.end(), of_rank) == 1) return {};
  return fmt::format("/box-{:06}", std::count_if(variable.parts.data(), &part, of_rank));
}

struct NamedArray {
  ChosenArray array;
  std::string name;
};

/// Whether an HDF5 file can hold all of them: each has a name of its own, and none is where another's group should be.
Status check_names(const std::vector<NamedArray>& arrays) {
  std::map<std::vector<std::string>, const NamedArray*> names;
  const auto clash = [](const NamedArray& one, const NamedArray& other, std::string_view why) {
    return Status::invalid_argument(fmt::format("an HDF5 file cannot hold both '{}' and '{}': {}",
                                                one.array.variable().name, other.array.variable().name, why),
                                    other.name, "name fewer variables, and write the others to another file");
  };
  for (const NamedArray& one : arrays) {
    VARVE_ASSIGN(std::vector<std::string> path, hdf5_path(one.name));
    const auto [there, is_new] = names.emplace(std::move(path), &one);
    if (!is_new) return clash(*there->second, one, "they have one name there");
  }
  for (const auto& [path, one] : names) {
    for (std::vector<std::string> above = path; above.size() > 1;) {
      above.pop_back();
      if (const auto array = names.find(above); array != names.end())
        return clash(*array->second, *one, "the one is where the other's group should be");
    }
  }
  return {};
}

class ExportCommand final : public Command {
 public:
  std::string_view name() const override { return "export"; }
  std::string_view summary() const override { return "write variables of a set to an HDF5 or NumPy file"; }

  void declare(Arguments& arguments) override {
    arguments.positional(
        "SET", set_,
        std::string(kSetForms) + "; or one of its variables, which may have a box, as in JOB@STEP:VARIABLE[0:10,:,5]");
    arguments.optional_positional_list("VARIABLE", names_, "more of them (default: all)");
    arguments.text("--to", "FILE", to_, "the file, which ends with .h5, .hdf5 or .npy (one variable)");
    arguments.number("--rank", "N", rank_, "only what this rank saved");
    arguments.flag("--force", force_, "replace a file that is there");
    arguments.examples(
        "  varve export run@7 --to run7.h5                              all variables\n"
        "  varve export run@7:temperature velocity --to run7.h5\n"
        "  varve export 'run@7:temperature[0:10,:,5]' --to plane.npy    some rows of one plane\n"
        "  varve export run@7:particles --rank 3 --to particles3.npy\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (to_.empty()) return Status::invalid_argument("no file is named", "", "give --to FILE.h5 or --to FILE.npy");
    VARVE_ASSIGN(const ArrayFileKind kind, array_file_kind(to_));
    if (!force_ && posix_file_system().stat(to_).ok()) return is_there(to_);
    VARVE_ASSIGN(std::unique_ptr<Store> store, session.open_store());
    const Catalog catalog(*store);
    VARVE_ASSIGN(const SetName name, find_set(catalog));
    VARVE_ASSIGN(const SetRecord record, catalog.read(name));
    const Result<StoredVariables> variables = StoredVariables::read(*store, record);
    if (!variables.ok()) return catalog.unless_dropped(name, variables.status());
    VariableReader reader(*store, *variables, processor_count());
    VARVE_ASSIGN(const std::vector<NamedArray> arrays, choose(session, *variables, reader));
    if (arrays.empty()) {
      return Status::not_found("there is nothing to export", name.to_string(),
                               {Remedy::list_variables, name.to_string()});
    }
    if (kind == ArrayFileKind::npy && arrays.size() > 1) {
      return Status::invalid_argument(
          fmt::format("a .npy file holds one array, and {} are to be exported", arrays.size()), to_,
          "name one variable, and a --rank if it is no whole, or write an .h5 file");
    }
    if (kind == ArrayFileKind::hdf5) VARVE_TRY(check_names(arrays));
    VARVE_TRY(write(kind, arrays, reader, session.begin_progress()));
    session.end_progress();
    print(session, name, arrays);
    return ExitCode::success;
  }

 private:
  Result<SetName> find_set(const Catalog& catalog) {
    if (!names_part_of_set(set_)) return catalog.resolve(set_);
    VARVE_ASSIGN(PartOfSet first, find_part_of_set(catalog, set_));
    names_.insert(names_.begin(), std::move(first.part));
    return catalog.resolve(first.set);
  }

  Result<std::vector<NamedArray>> choose(Session& session, const StoredVariables& variables,
                                         VariableReader& reader) const {
    std::vector<NamedArray> arrays;
    for (const std::string& text : names_) {
      const StoredVariable* const variable = variables.find(text);
      const bool in_parts = variable != nullptr && (rank_ || !variable->one_array.ok());
      std::vector<NamedArray> of_variable = in_parts ? parts_of(*variable) : std::vector<NamedArray>();
      if (of_variable.empty()) {
        VARVE_ASSIGN(ChosenArray array, ChosenArray::choose(variables, reader, text, rank_));
        of_variable.push_back({array, name_in_file(array, false)});
      }
      for (NamedArray& one : of_variable) {
        VARVE_TRY(one.array.check(reader));
        arrays.push_back(std::move(one));
      }
    }
    if (!names_.empty()) return arrays;
    for (const StoredVariable& variable : variables.all()) {
      if (variable.is_in_whole) continue;
      const ChosenArray whole(variable, nullptr);
      const bool may_be_whole = !rank_ && variable.one_array.ok();
      const Status incomplete = may_be_whole ? whole.check(reader) : Status();
      const bool lacks_cells = incomplete.code() == StatusCode::not_found;
      if (lacks_cells) session.warn(incomplete.with_context("exported in parts"));
      std::vector<NamedArray> of_variable;
      if (may_be_whole && !lacks_cells) {
        of_variable.push_back({whole, name_in_file(whole, false)});
      } else {
        of_variable = parts_of(variable);
      }
      for (NamedArray& one : of_variable) {
        const Status readable = one.array.check(reader);
        if (readable.code() == StatusCode::unsupported) {
          session.warn(readable.with_context("left out"));
          continue;
        }
        VARVE_TRY(readable);
        arrays.push_back(std::move(one));
      }
    }
    return arrays;
  }

  /// What each rank has of it, or the one that was named.
  std::vector<NamedArray> parts_of(const StoredVariable& variable) const {
    std::vector<NamedArray> parts;
    for (const StoredPart& part : variable.parts) {
      if (rank_ && (part.rank < 0 || static_cast<uint64_t>(part.rank) != *rank_)) continue;
      const ChosenArray array(variable, &part);
      parts.push_back({array, name_in_file(array, !rank_) + box_name(variable, part)});
    }
    return parts;
  }

  Status write(ArrayFileKind kind, const std::vector<NamedArray>& arrays, VariableReader& reader,
               ProgressSink& progress) const {
    progress.phase("exporting");
    uint64_t total = 0;
    for (const NamedArray& one : arrays) {
      if (__builtin_add_overflow(total, one.array.bytes(), &total)) total = UINT64_MAX;
    }
    progress.total(total);
    VARVE_TRY(check_room(total));
    DraftFile draft(to_);
    {
      VARVE_ASSIGN(const std::unique_ptr<ArrayFile> file, draft.create(kind));
      for (const NamedArray& one : arrays) {
        VARVE_ASSIGN(const std::vector<std::string> path, hdf5_path(one.name));
        VARVE_TRY(file->begin(path, one.array.type(), one.array.shape()));
        VARVE_TRY(one.array.read(
            reader, [&](const CellBox& cells, ByteSpan bytes) { return file->write(cells, bytes); }, progress));
      }
      VARVE_TRY(file->finish());
    }
    const Status placed = draft.put_in_place(force_);
    return placed.code() == StatusCode::already_exists ? is_there(to_) : placed;
  }

  /// Of an array that is hardly there, a file may describe more cells than any disk can hold.
  Status check_room(uint64_t bytes) const {
    const Result<uint64_t> free = posix_file_system().free_bytes(parent_path(to_));
    if (!free.ok() || bytes <= *free) return {};
    return Status(StatusCode::no_space,
                  fmt::format("there is room for {}, and the arrays take {}", format_size(*free), format_size(bytes)),
                  to_, "name fewer variables, or boxes of them");
  }

  void print(Session& session, const SetName& name, const std::vector<NamedArray>& arrays) const {
    uint64_t total = 0;
    Json told = Json::array();
    for (const NamedArray& one : arrays) {
      total += one.array.bytes();
      Json array{{"variable", one.array.variable().name},
                 {"type", one.array.type().name()},
                 {"shape", one.array.shape()},
                 {"bytes", one.array.bytes()}};
      if (one.array.part() != nullptr) array["rank"] = one.array.part()->rank;
      told.push_back(std::move(array));
    }
    if (session.json()) {
      session.print_facts(
          Json{{"set", name.to_string()}, {"file", to_}, {"raw_bytes", total}, {"arrays", std::move(told)}});
      return;
    }
    session.print(fmt::format("exported {}: {}, {} to {}\n", quote_name(name.to_string()),
                              format_count(arrays.size(), "array", "arrays"), format_size(total), quote_name(to_)));
  }

  std::string set_, to_;
  std::vector<std::string> names_;
  std::optional<uint64_t> rank_;
  bool force_ = false;
};
}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace varve::cli
