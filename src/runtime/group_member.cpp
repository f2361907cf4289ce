#include "runtime/group_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "layout/layout_reader.h"
#include "varve/session.h"

namespace varve {

Result<std::unique_ptr<LocalMember>> LocalMember::open(const SegmentOwner& owner) {
  VARVE_ASSIGN(std::unique_ptr<SnapshotView> view, SnapshotView::open(owner));
  return std::unique_ptr<LocalMember>(new LocalMember(owner, std::move(view)));
}

Result<std::optional<uint64_t>> LocalMember::next_step() {
  const std::vector<uint64_t> steps = view_->full_steps();
  return steps.empty() ? std::nullopt : std::optional(steps.front());
}

bool LocalMember::will_lack(uint64_t step) {
  // In this order: a snapshot that becomes full in between is seen by the last look.
  const std::optional<uint64_t> given_up = view_->given_up();
  const bool over = !view_->member_alive() || (given_up && *given_up >= step);
  const std::vector<uint64_t> steps = view_->full_steps();
  if (std::find(steps.begin(), steps.end(), step) != steps.end()) return false;
  return over || (!steps.empty() && steps.back() > step);
}

Result<DrainedImage*> LocalMember::begin_drain(uint64_t step) {
  VARVE_ASSIGN(image_.reader, view_->begin_drain(step));
  draining_ = step;
  return &image_;
}

Status LocalMember::end_drain(uint64_t step, const Status& outcome) {
  if (draining_ != step) {
    // It was full and nobody wants it: taken and given back at once.
    const std::vector<uint64_t> steps = view_->full_steps();
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) return {};
    const Status taken = view_->begin_drain(step).status();
    if (!taken.ok()) return taken;
  }
  draining_.reset();
  view_->end_drain(outcome);
  return {};
}

ByteSpan LocalMember::Image::view(uint64_t offset, uint64_t bytes_max) {
  // A program that writes to a grid that it has lent is told so by the sums, and is not to trip a codec meanwhile.
  return reader->has_lent_grids() ? ByteSpan() : reader->view(offset, bytes_max);
}

Status LocalMember::Image::check_unchanged() {
  // What was copied is nobody's but ours. A lent grid is the program's to read, and its sums tell if it did more.
  if (!reader->has_lent_grids()) return {};
  return reader->verify().with_context("a lent grid was written to while it was being saved");
}

SnapshotSource::SnapshotSource(std::vector<Part> parts, int64_t time_s, const std::optional<SetOrigin>& origin)
    : parts_(std::move(parts)), touched_parts_(parts_.size()) {
  if (origin) {
    origin_ = origin->text();
    first_image_ = 1;
    const uint32_t first_rank = parts_.front().rank;
    add_file(SetOrigin::file_name(first_rank), first_rank, origin_.size(), time_s);
  }
  for (const Part& part : parts_) {
    add_file(image_file_name(part.rank), part.rank, part.image->image().image_bytes, time_s);
  }
}

void SnapshotSource::add_file(const std::string& path, uint32_t rank, uint64_t bytes, int64_t time_s) {
  SourceFile file;
  file.path = path;
  file.mode = 0644;
  file.modified_s = time_s;
  file.bytes = bytes;
  file.rank = rank;
  files_.push_back(std::move(file));
}

namespace {
/// Puts the variables of a file that lies in an image in the place of that one.
void put_in_place(const Variable& file, Layout&& inside, std::vector<Variable>& variables) {
  for (Variable& variable : inside.variables) {
    variable.name = file.name + variable.name;
    for (Extent& extent : variable.extents) extent.offset += file.extents.front().offset;
    variables.push_back(std::move(variable));
  }
}

/// What formats say of variables that are files. Only what needs no process of its own: the program may have a large
/// memory, or an MPI library that does not like to be forked.
Layout with_files_opened(DrainedImage& image, Layout layout) {
  const std::string prefix = "/" + std::string(kFileVariable);
  const auto is_file = [&prefix](const Variable& variable) {
    return variable.name.starts_with(prefix) && variable.type.kind == ElementKind::opaque &&
           variable.extents.size() == 1;
  };
  if (std::none_of(layout.variables.begin(), layout.variables.end(), is_file)) return layout;
  // Never destroyed: a checkpoint thread may be at work when the program's statics are.
  static const LayoutReaders& readers = *new LayoutReaders(built_in_readers());
  Layout opened{.format = layout.format, .variables = {}};
  for (const Variable& variable : layout.variables) {
    std::optional<Layout> inside;
    if (is_file(variable)) {
      const Extent place = variable.extents.front();
      const ReadAt read = [&image, place](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
        const uint64_t bytes = offset < place.bytes ? std::min<uint64_t>(into.size(), place.bytes - offset) : 0;
        VARVE_TRY(image.read(place.offset + offset, into.first(bytes)));
        return bytes;
      };
      inside = read_layout_safely(readers, read, place.bytes);
    }
    if (inside) {
      put_in_place(variable, std::move(*inside), opened.variables);
    } else {
      opened.variables.push_back(variable);
    }
  }
  return validate_layout(opened, image.image().image_bytes).ok() ? opened : layout;
}
}  // namespace

Result<std::vector<Layout>> SnapshotSource::layouts(ProgressSink&) {
  std::vector<Layout> layouts(first_image_);
  for (Layout& plain : layouts) plain.format = "raw";
  for (const Part& part : parts_) {
    layouts.push_back(with_files_opened(*part.image, image_layout(part.image->image())));
  }
  return layouts;
}

Status SnapshotSource::read(uint32_t file, uint64_t offset, MutableByteSpan into) {
  if (file >= first_image_) return touch(file, into.size()).read(offset, into);
  if (offset > origin_.size() || into.size() > origin_.size() - offset) {
    return Status::internal("bytes past the end of a file were asked for", files_[file].path);
  }
  const ByteSpan bytes = as_bytes(origin_);
  std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
  return {};
}

ByteSpan SnapshotSource::view(uint32_t file, uint64_t offset, uint64_t bytes_max) {
  if (file < first_image_) return {};
  const ByteSpan bytes = parts_[file - first_image_].image->view(offset, bytes_max);
  if (!bytes.empty()) touch(file, bytes.size());
  return bytes;
}

void SnapshotSource::leave(ByteSpan viewed) {
  for (const Part& part : parts_) part.image->leave_pages(viewed);
}

/// The image of a file of which so many bytes are being looked at. The memory of all ranks counts as that of the
/// process that saves it for a while only; who views bytes leaves them, but for pages that he looked at once more, some
/// of them when somebody else is looked at already.
DrainedImage& SnapshotSource::touch(uint32_t file, uint64_t bytes) {
  constexpr uint64_t kTouchedBytesMax = 4_MiB;
  constexpr uint8_t kTimesLeft = 2;
  if (touched_bytes_ > kTouchedBytesMax) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (touched_parts_[i] == 0) continue;
      parts_[i].image->leave_pages();
      --touched_parts_[i];
    }
    touched_bytes_ = 0;
  }
  const size_t part = file - first_image_;
  touched_parts_[part] = kTimesLeft;
  touched_bytes_ += bytes;
  return *parts_[part].image;
}

Result<uint64_t> SnapshotSource::hole_bytes(uint32_t, uint64_t, uint64_t) { return uint64_t{0}; }

Status SnapshotSource::check_unchanged() {
  for (const Part& part : parts_) VARVE_TRY(part.image->check_unchanged());
  return {};
}

uint64_t SnapshotSource::bytes() const {
  uint64_t bytes = 0;
  for (const SourceFile& file : files_) bytes += file.bytes;
  return bytes;
}

GroupSnapshots::GroupSnapshots(std::vector<std::unique_ptr<GroupMember>> members, std::string job)
    : members_(std::move(members)),
      job_(std::move(job)),
      has_remote_(std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member->remote(); })) {}

std::optional<uint64_t> GroupSnapshots::next_step(const Lose& lose) {
  for (;;) {
    const std::optional<uint64_t> step = oldest_local_step();
    if (!step) return std::nullopt;
    bool all = true;
    const GroupMember* lacking = nullptr;
    for (const auto& member : members_) {
      if (member->remote()) continue;
      if (member->will_lack(*step)) lacking = member.get();
      const Result<std::optional<uint64_t>> next = member->next_step();
      all = all && next.ok() && *next == step;
    }
    if (!all && lacking == nullptr) return std::nullopt;
    // Only now are those on other nodes asked, as they keep us waiting until they are as far.
    for (const auto& member : members_) {
      if (member->remote() && !catch_up(*member, *step, lose)) lacking = member.get();
    }
    if (lacking == nullptr) return step;
    lose(*step, Status::io_error(fmt::format("rank {} has no snapshot of this step", lacking->rank()),
                                 SetName{job_, *step}.to_string()));
  }
}

/// The oldest step of which a member on this node has a snapshot, or, if there are others elsewhere who wait to be
/// told, that it has given up.
std::optional<uint64_t> GroupSnapshots::oldest_local_step() {
  std::optional<uint64_t> oldest;
  auto consider = [&oldest](uint64_t step) { oldest = std::min(oldest.value_or(step), step); };
  for (const auto& member : members_) {
    if (member->remote()) continue;
    const std::optional<uint64_t> given_up = member->given_up();
    if (has_remote_ && given_up && (!given_back_ || *given_up > *given_back_)) consider(*given_up);
    const Result<std::optional<uint64_t>> step = member->next_step();
    if (step.ok() && *step) consider(**step);
  }
  return oldest;
}

/// Waits until a remote member is at `step` or past it; whether it has a snapshot of it.
bool GroupSnapshots::catch_up(GroupMember& member, uint64_t step, const Lose& lose) {
  for (;;) {
    const Result<std::optional<uint64_t>> next = member.next_step();
    if (!next.ok() || !*next) return false;
    if (**next >= step) return !member.will_lack(step);
    lose(**next, Status::io_error("not all ranks have a snapshot of this step", SetName{job_, **next}.to_string()));
  }
}

void GroupSnapshots::lose_rest(const Lose& lose) {
  for (const auto& member : members_) {
    for (;;) {
      const Result<std::optional<uint64_t>> step = member->next_step();
      if (!step.ok() || !*step) break;
      lose(**step, Status::cancelled("the session ended before all ranks had this step"));
    }
  }
}

Result<std::vector<SnapshotSource::Part>> GroupSnapshots::begin_drain(uint64_t step) {
  std::vector<SnapshotSource::Part> parts;
  for (const auto& member : members_) {
    VARVE_ASSIGN(DrainedImage* const image, member->begin_drain(step));
    parts.push_back({member->rank(), image});
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return parts;
}

std::vector<Status> GroupSnapshots::give_back(uint64_t step, const Status& outcome) {
  std::vector<Status> failures;
  for (const auto& member : members_) {
    Status ended = member->end_drain(step, outcome);
    if (!ended.ok()) failures.push_back(std::move(ended));
  }
  given_back_ = newest_given_back(step);
  return failures;
}

void GroupSnapshots::post(const GroupNews& news) {
  for (const auto& member : members_) member->post(news);
}

}  // namespace varve
