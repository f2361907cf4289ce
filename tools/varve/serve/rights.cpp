#include "serve/rights.h"

#include <algorithm>
#include <array>
#include <optional>

#include "backend/put_aside.h"
#include "store/remarks.h"

namespace varve {

namespace {
constexpr size_t kIdDigits = 32;
constexpr size_t kNameBytesMax = 100;  // of a job
constexpr size_t kNumberDigitsMax = 20;

bool is_id(std::string_view text) {
  return text.size() == kIdDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kNumberDigitsMax && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_job(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && text[0] != '.' && text[0] != '-' &&
         std::none_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x20 || byte == 0x7f || c == '/' || c == '@';
         });
}

/// Takes `suffix` off the end of `text`, if it is there.
bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

/// ID.SUFFIX
bool is_id_with(std::string_view text, std::string_view suffix) { return take_suffix(text, suffix) && is_id(text); }

/// varve.store, varve.spread, or one of them that is being written
StoreName header_name_of(std::string_view name) {
  struct Header {
    std::string_view name;
    StoreName whole, draft;
  };
  static constexpr std::array<Header, 2> kHeaders{{{"varve.store", StoreName::header, StoreName::header_draft},
                                                   {"varve.spread", StoreName::spread, StoreName::spread_draft}}};
  for (const Header& header : kHeaders) {
    if (!name.starts_with(header.name)) continue;
    const std::string_view rest = name.substr(header.name.size());
    if (rest.empty()) return header.whole;
    if (rest[0] == '.' && is_id_with(rest.substr(1), ".tmp")) return header.draft;
  }
  return StoreName::none;
}

/// JOB@STEP.RUN.K-of-N.part, or .failed
bool is_part(std::string_view name) {
  if (!take_suffix(name, ".part") && !take_suffix(name, ".failed")) return false;
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos || !is_job(name.substr(0, at))) return false;
  name.remove_prefix(at + 1);
  const size_t first = name.find('.');
  const size_t second = name.find('.', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  const std::string_view of = name.substr(second + 1);
  const size_t middle = of.find("-of-");
  return middle != std::string_view::npos && is_number(name.substr(0, first)) &&
         is_id(name.substr(first + 1, second - first - 1)) && is_number(of.substr(0, middle)) &&
         is_number(of.substr(middle + 4));
}

StoreName remark_of(std::string_view name) {
  switch (remark_file_of(name)) {
    case RemarkFile::none: return StoreName::none;
    case RemarkFile::draft: return StoreName::remark_draft;
    case RemarkFile::pinning: return StoreName::pinning;
    case RemarkFile::remark: return StoreName::remark;
  }
  return StoreName::none;
}

StoreName name_in_folder(std::string_view folder, std::string_view name) {
  const auto if_so = [](bool is, StoreName what) { return is ? what : StoreName::none; };
  if (folder == "sets") return if_so(is_job(name), StoreName::job_folder);
  if (folder == "parts") {
    return if_so(is_part(name), name.ends_with(".failed") ? StoreName::part_failure : StoreName::part);
  }
  if (folder == "remarks") return remark_of(name);
  if (folder == "writers") return if_so(is_id(name), StoreName::lease);
  if (folder == "condemned") return if_so(is_id(name), StoreName::mark);
  if (folder == "arenas") {
    if (is_id_with(name, ".arena")) return StoreName::arena;
    return if_so(is_id_with(name, ".part"), StoreName::arena_draft);
  }
  if (folder == "runs") {
    std::string_view job = name;
    const bool is_lease = take_suffix(job, ".lease") && is_job(job);
    return if_so(is_lease || is_id_with(name, ".tmp") || is_id_with(name, ".stale"), StoreName::run_file);
  }
  if (folder != "index") return StoreName::none;
  if (is_id_with(name, ".run")) return StoreName::index_run;
  return if_so(is_id_with(name, ".run.part") || is_id_with(name, ".part"), StoreName::index_draft);
}
}  // namespace

StoreName store_name_of(std::string_view path) {
  static constexpr std::array<std::string_view, 8> kFolders{"sets",      "parts", "arenas", "writers",
                                                            "condemned", "index", "runs",   "remarks"};
  if (path.empty()) return StoreName::root;
  const size_t slash = path.find('/');
  const std::string_view first = path.substr(0, slash);
  if (slash == std::string_view::npos) {
    const bool is_folder = std::find(kFolders.begin(), kFolders.end(), path) != kFolders.end();
    return is_folder ? StoreName::folder : header_name_of(path);
  }
  const std::string_view rest = path.substr(slash + 1);
  const size_t second_slash = rest.find('/');
  if (second_slash == std::string_view::npos) return name_in_folder(first, rest);
  std::string_view record = rest.substr(second_slash + 1);
  const std::optional<PutAside> aside = PutAside::parse(record);
  if (aside) record = aside->name;
  const bool is_record =
      first == "sets" && is_job(rest.substr(0, second_slash)) && take_suffix(record, ".set") && is_number(record);
  if (!is_record) return StoreName::none;
  return aside ? StoreName::record_aside : StoreName::record;
}

std::string record_of_part(std::string_view path) {
  path.remove_prefix(path.find('/') + 1);
  const size_t at = path.rfind('@');
  const size_t end = path.find('.', at);
  return "sets/" + std::string(path.substr(0, at)) + "/" + std::string(path.substr(at + 1, end - at - 1)) + ".set";
}

bool is_store_path(std::string_view path) { return store_name_of(path) != StoreName::none; }

bool is_draft(StoreName name) {
  return name == StoreName::lease || name == StoreName::arena_draft || name == StoreName::index_draft ||
         name == StoreName::pinning || name == StoreName::remark_draft || name == StoreName::header_draft ||
         name == StoreName::spread_draft;
}

bool is_plain_path(std::string_view path) {
  if (path.empty()) return true;
  if (path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

void OwnNames::note(const std::string& path, const UniqueId& client) {
  const MutexLock lock(mutex_);
  owners_[path] = client;
  oldest_.push_back(path);
  while (oldest_.size() > kNamesMax) {
    owners_.erase(oldest_.front());
    oldest_.pop_front();
  }
}

bool OwnNames::is_of(const std::string& path, const UniqueId& client) const {
  const MutexLock lock(mutex_);
  const auto owner = owners_.find(path);
  return owner != owners_.end() && owner->second == client;
}

void OwnNames::forget(const std::string& path) {
  const MutexLock lock(mutex_);
  owners_.erase(path);
}

bool OwnNames::is_claimed(const std::set<std::string>& paths) const {
  for (const std::string& path : paths) {
    if (claimed_.contains(path)) return true;
  }
  return false;
}

OwnNames::Claim::Claim(OwnNames& names, std::set<std::string> paths) : names_(names), paths_(std::move(paths)) {
  std::set<std::string> claimed = paths_;  // all of them, or, where there is no memory, none
  const MutexLock lock(names_.mutex_);
  while (names_.is_claimed(paths_)) names_.unclaimed_.wait(names_.mutex_);
  names_.claimed_.merge(claimed);
}

OwnNames::Claim::~Claim() {
  {
    const MutexLock lock(names_.mutex_);
    for (const std::string& path : paths_) names_.claimed_.erase(path);
  }
  names_.unclaimed_.notify_all();
}

namespace {
Status lacking(Rights rights, std::string_view what) {
  return {StatusCode::permission_denied,
          "the key has the right to " + std::string(rights == Rights::read ? "read" : "add to the store") +
              ", but not " + std::string(what),
          "", "use a key with more rights (`varve serve --help`)"};
}

Status not_done(std::string_view what) {
  return {StatusCode::permission_denied, std::string(what) + ", which no client of a store does"};
}

/// What nobody may do. `name`: what the path of the request is of.
template <class Message>
Status check_names(const Message&, StoreName) {
  return {};
}

// Of index runs, which may not be written to either, see RequestHandler.
Status check_names(const CreateRequest&, StoreName name) {
  const bool may_be = is_draft(name) || name == StoreName::mark || name == StoreName::part_failure ||
                      name == StoreName::none || name == StoreName::index_run || name == StoreName::run_file;
  return may_be ? Status() : not_done("a file is to be made under its last name");
}

Status check_names(const ResumeRequest&, StoreName name) {
  const bool may_be =
      is_draft(name) || name == StoreName::none || name == StoreName::index_run || name == StoreName::run_file;
  return may_be ? Status() : not_done("a file that is complete is to be written to");
}

Status check_names(const RemoveRequest&, StoreName name) {
  const bool is_header = name == StoreName::header || name == StoreName::spread;
  return is_header ? not_done("the store's header is to be removed") : Status();
}

Status check_names(const RemoveDirectoryRequest&, StoreName name) {
  const bool may_be = name == StoreName::job_folder || name == StoreName::none || name == StoreName::run_file;
  return may_be ? Status() : not_done("a store's folder is to be removed");
}

Status check_names(const TouchRequest&, StoreName name) {
  // A part that is dated ahead of now is to age from now on (store/commit.h, is_left_for()).
  const bool may_be = name == StoreName::lease || name == StoreName::none || name == StoreName::run_file ||
                      name == StoreName::part || name == StoreName::part_failure;
  return may_be ? Status() : not_done("a file is to look newer");
}

Status check_names(const RenameRequest& request, StoreName from) {
  const StoreName to = store_name_of(request.to);
  switch (from) {
    case StoreName::none: return to == StoreName::none ? Status() : not_done("another file is to be renamed to that");
    case StoreName::lease:
      if (to == StoreName::record || to == StoreName::part) return {};
      break;
    case StoreName::arena_draft:
      if (to == StoreName::arena) return {};
      break;
    case StoreName::index_draft:
      if (to == StoreName::index_run) return {};
      break;
    case StoreName::run_file:
      if (to == StoreName::run_file) return {};
      break;
    case StoreName::pinning:
    case StoreName::remark_draft:
      if (to == StoreName::remark) return {};
      break;
    case StoreName::header_draft:
      if (to == StoreName::header) return {};
      break;
    case StoreName::spread_draft:
      if (to == StoreName::spread) return {};
      break;
    case StoreName::record:
    case StoreName::record_aside: {
      // Who removes a set that turns out to be another gives it its name back.
      const bool is_from = from == StoreName::record;
      const std::optional<PutAside> aside = PutAside::parse(is_from ? request.to : request.path);
      if (aside && aside->name == (is_from ? request.path : request.to) && (is_from || !request.replace)) return {};
      break;
    }
    case StoreName::root:
    case StoreName::folder:
    case StoreName::job_folder:
    case StoreName::header:
    case StoreName::spread:
    case StoreName::part:
    case StoreName::part_failure:
    case StoreName::remark:
    case StoreName::arena:
    case StoreName::mark:
    case StoreName::index_run: break;
  }
  return not_done("a file is to get a name that it cannot have");
}

/// What who only appends may not do beyond that.
template <class Message>
Status check_append(const Message&, StoreName) {
  return {};
}

Status check_append(const CreateRequest&, StoreName name) {
  if (name == StoreName::mark) return lacking(Rights::append, "to mark arenas for removal");
  const bool is_header = name == StoreName::header_draft || name == StoreName::spread_draft;
  return is_header ? lacking(Rights::append, "to make a store") : Status();
}

Status check_append(const RemoveRequest&, StoreName name) {
  const bool may_be_own =
      is_draft(name) || name == StoreName::part || name == StoreName::part_failure || name == StoreName::run_file;
  return may_be_own ? Status() : lacking(Rights::append, "to remove anything");
}

Status check_append(const TouchRequest&, StoreName name) {
  const bool is_part = name == StoreName::part || name == StoreName::part_failure;
  return is_part ? lacking(Rights::append, "to have parts wait for longer") : Status();
}

Status check_append(const RemoveDirectoryRequest&, StoreName name) {
  return name == StoreName::run_file ? Status() : lacking(Rights::append, "to remove anything");
}

Status check_append(const RenameRequest& request, StoreName from) {
  if (from == StoreName::record) return lacking(Rights::append, "to remove anything");
  if (from == StoreName::record_aside) return {};  // RequestHandler looks what it says
  // Index runs have names of their own: what would be replaced is not there.
  const bool may_be = !request.replace || from == StoreName::index_draft || from == StoreName::run_file;
  return may_be ? Status() : lacking(Rights::append, "to replace anything");
}
}  // namespace

std::string_view name_of(Rights rights) {
  switch (rights) {
    case Rights::all: return "all";
    case Rights::append: return "append";
    case Rights::read: return "read";
  }
  return "";
}

Result<Rights> parse_rights(std::string_view text) {
  for (const Rights rights : {Rights::all, Rights::append, Rights::read}) {
    if (text == name_of(rights)) return rights;
  }
  return Status::invalid_argument("there are no such rights", std::string(text), "all, append or read");
}

Status check_allowed(Rights rights, const AnyRequest& request) {
  auto check = [rights](const auto& message) -> Status {
    StoreName name = StoreName::none;
    if constexpr (requires { message.path; }) name = store_name_of(message.path);
    if (rights == Rights::read && !message.kMessage.looks_only) return lacking(Rights::read, "to change the store");
    if (rights == Rights::append) VARVE_TRY(check_append(message, name));
    return check_names(message, name);
  };
  return std::visit(check, request);
}

}  // namespace varve
