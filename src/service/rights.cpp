#include "service/rights.h"

#include "service/store_names.h"

namespace varve {

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

Status check_rename(const Request& request) {
  const StoreName from = store_name_of(request.path), to = store_name_of(request.to);
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
    case StoreName::header_draft:
      if (to == StoreName::header) return {};
      break;
    case StoreName::spread_draft:
      if (to == StoreName::spread) return {};
      break;
    case StoreName::root:
    case StoreName::folder:
    case StoreName::job_folder:
    case StoreName::header:
    case StoreName::spread:
    case StoreName::record:
    case StoreName::part:
    case StoreName::part_failure:
    case StoreName::arena:
    case StoreName::mark:
    case StoreName::index_run: break;
  }
  return not_done("a file is to get a name that it cannot have");
}

/// What nobody may do.
Status check_names(const Request& request) {
  const StoreName name = store_name_of(request.path);
  if (name == StoreName::run_file && request.message != Message::rename) return {};
  switch (request.message) {
    case Message::create:
      return is_draft(name) || name == StoreName::mark || name == StoreName::part_failure || name == StoreName::none ||
                     name == StoreName::index_run
                 ? Status()  // of index runs see RequestHandler
                 : not_done("a file is to be made under its last name");
    case Message::resume:
      return is_draft(name) || name == StoreName::none || name == StoreName::index_run
                 ? Status()
                 : not_done("a file that is complete is to be written to");
    case Message::remove:
      return name == StoreName::header || name == StoreName::spread ? not_done("the store's header is to be removed")
                                                                    : Status();
    case Message::remove_directory:
      return name == StoreName::job_folder || name == StoreName::none ? Status()
                                                                      : not_done("a store's folder is to be removed");
    case Message::rename: return check_rename(request);
    case Message::touch:
      return name == StoreName::lease || name == StoreName::none ? Status() : not_done("a file is to look newer");
    default: return {};
  }
}

Status check_append(const Request& request) {
  const StoreName name = store_name_of(request.path);
  if (name == StoreName::run_file) return {};
  switch (request.message) {
    case Message::create:
      if (name == StoreName::mark) return lacking(Rights::append, "to mark arenas for removal");
      if (name == StoreName::header_draft || name == StoreName::spread_draft)
        return lacking(Rights::append, "to make a store");
      return {};
    case Message::remove:
      if (is_draft(name) || name == StoreName::part || name == StoreName::part_failure)
        return {};  // if it is the client's own
      return lacking(Rights::append, "to remove anything");
    case Message::remove_directory: return lacking(Rights::append, "to remove anything");
    case Message::rename:
      // Index runs have names of their own: what would be replaced is not there.
      if (request.replace && name != StoreName::index_draft) return lacking(Rights::append, "to replace anything");
      return {};
    default: return {};
  }
}

Status check_read(const Request& request) {
  switch (request.message) {
    case Message::hello:
    case Message::ping:
    case Message::goodbye:
    case Message::open:
    case Message::read:
    case Message::size:
    case Message::close:
    case Message::stat:
    case Message::list:
    case Message::find:
    case Message::room: return {};
    case Message::create:
    case Message::resume:
    case Message::write:
    case Message::truncate:
    case Message::sync:
    case Message::create_directory:
    case Message::remove:
    case Message::remove_directory:
    case Message::rename:
    case Message::touch:
    case Message::sync_directory:
    case Message::push:
    case Message::pull:
    case Message::offer:
    case Message::answer: break;
  }
  return lacking(Rights::read, "to change the store");
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

Status check_allowed(Rights rights, const Request& request) {
  if (rights == Rights::read) VARVE_TRY(check_read(request));
  if (rights == Rights::append) VARVE_TRY(check_append(request));
  return check_names(request);
}

}  // namespace varve
