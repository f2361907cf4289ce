#include "redundancy/rebuild.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "redundancy/erasure_code.h"
#include "redundancy/member_files.h"
#include "redundancy/parity_file.h"

namespace varve {

namespace {
/// Where the lost files of a member lie in its stream. Those of no bytes lie nowhere.
std::vector<ByteRange> find_lost_ranges(const ProtectedMember& member, const std::vector<bool>& lost_files) {
  std::vector<ByteRange> ranges;
  uint64_t begin = 0;
  for (size_t i = 0; i < member.files.size(); ++i) {
    const uint64_t end = begin + member.files[i].bytes;
    if (lost_files[i] && begin < end) ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

/// "all", or the names of what a member lost, at most a few.
std::string name_losses(const ProtectedMember& member, const MemberSurvey& survey) {
  constexpr size_t kNamesMax = 4;
  std::vector<std::string_view> names;
  for (size_t i = 0; i < member.files.size(); ++i) {
    if (survey.lost_files[i]) names.push_back(member.files[i].name);
  }
  if (survey.parity_lost && names.size() == member.files.size()) return "everything";
  if (survey.parity_lost) names.push_back(kParityFileName);
  const size_t more = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}
}  // namespace

RebuildPlan::RebuildPlan(const ParityGroup& group, std::vector<MemberSurvey> surveys)
    : group_(&group), surveys_(std::move(surveys)) {
  for (uint32_t position = 0; position < group.members(); ++position) {
    lost_ranges_.push_back(find_lost_ranges(group.member(position), surveys_[position].lost_files));
  }
}

Result<RebuildPlan> RebuildPlan::create(const ParityGroup& group, std::vector<MemberSurvey> surveys) {
  if (surveys.size() != group.members()) return Status::internal("not all nodes of a failure group were looked at");
  for (uint32_t position = 0; position < group.members(); ++position) {
    if (surveys[position].lost_files.size() != group.member(position).files.size()) {
      return Status::internal("not all files of a node were looked at", group.name_of(position));
    }
  }
  RebuildPlan plan(group, std::move(surveys));
  VARVE_TRY(plan.check());
  for (uint32_t position = 0; position < group.members(); ++position) {
    plan.rounds_ = std::max<uint64_t>(plan.rounds_, plan.tasks(position).size());
  }
  return plan;
}

uint32_t RebuildPlan::member_of(uint32_t stripe, uint32_t part) const {
  const StripeGeometry& geometry = group_->geometry();
  return is_parity(part) ? geometry.parity_member(stripe, part - geometry.data_parts())
                         : geometry.data_member(stripe, part);
}

ByteRange RebuildPlan::data_range(uint32_t stripe, uint32_t part, uint64_t block) const {
  return group_->geometry().block_of_piece(member_of(stripe, part), part, block);
}

bool RebuildPlan::is_lost(uint32_t stripe, uint32_t part, uint64_t block) const {
  const uint32_t member = member_of(stripe, part);
  if (is_parity(part)) return surveys_[member].parity_lost;
  const ByteRange range = data_range(stripe, part, block);
  if (range.bytes() == 0) return false;  // zeros are known
  const std::vector<ByteRange>& lost = lost_ranges_[member];
  const auto first = std::upper_bound(lost.begin(), lost.end(), range.begin,
                                      [](uint64_t begin, const ByteRange& each) { return begin < each.end; });
  return first != lost.end() && first->begin < range.end;
}

uint32_t RebuildPlan::lost_parts(uint32_t stripe, uint64_t block) const {
  const StripeGeometry& geometry = group_->geometry();
  uint32_t count = 0;
  for (uint32_t part = 0; part < geometry.data_parts() + geometry.parity_parts(); ++part) {
    count += is_lost(stripe, part, block) ? 1 : 0;
  }
  return count;
}

Status RebuildPlan::check() const {
  const auto with_losses =
      std::count_if(surveys_.begin(), surveys_.end(), [](const MemberSurvey& each) { return each.anything_lost(); });
  if (static_cast<uint64_t>(with_losses) <= group_->geometry().parity_parts()) return {};
  for (uint32_t stripe = 0; stripe < group_->geometry().stripes(); ++stripe) {
    for (uint64_t block = 0; block < blocks(stripe); ++block) {
      if (lost_parts(stripe, block) > group_->geometry().parity_parts()) return too_much_lost();
    }
  }
  return {};
}

Status RebuildPlan::too_much_lost() const {
  std::vector<std::string> losses;
  for (uint32_t position = 0; position < group_->members(); ++position) {
    if (!surveys_[position].anything_lost()) continue;
    losses.push_back(fmt::format("{} lost {}", group_->name_of(position),
                                 name_losses(group_->member(position), surveys_[position])));
  }
  const uint32_t losses_max = group_->group().redundancy.losses_max();
  return Status::not_found(
      fmt::format("too many nodes of a failure group have lost files: {}, where {} can rebuild the "
                  "loss of {}",
                  losses.size(), group_->group().redundancy.text(), losses_max),
      fmt::format("{}: {}", group_->group().label, fmt::join(losses, "; ")), "take another level, or an older set");
}

std::vector<RebuildPlan::Task> RebuildPlan::tasks(uint32_t position) const {
  const StripeGeometry& geometry = group_->geometry();
  std::vector<RebuildPlan::Task> tasks;
  for (uint32_t row = 0; surveys_[position].parity_lost && row < geometry.parity_parts(); ++row) {
    const uint32_t stripe = geometry.stripe_of_parity(position, row);
    for (uint64_t block = 0; block < blocks(stripe); ++block) {
      tasks.push_back({stripe, geometry.data_parts() + row, block});
    }
  }
  for (uint32_t piece = 0; !lost_ranges_[position].empty() && piece < geometry.data_parts(); ++piece) {
    const uint32_t stripe = geometry.stripe_of_piece(position, piece);
    for (uint64_t block = 0; block < blocks(stripe); ++block) {
      if (is_lost(stripe, piece, block)) tasks.push_back({stripe, piece, block});
    }
  }
  return tasks;
}

std::vector<uint32_t> RebuildPlan::sources(const RebuildPlan::Task& task) const {
  const StripeGeometry& geometry = group_->geometry();
  std::vector<uint32_t> zeros, others;
  for (uint32_t part = 0; part < geometry.data_parts() + geometry.parity_parts(); ++part) {
    if (part == task.part || is_lost(task.stripe, part, task.block)) continue;
    const bool no_bytes = !is_parity(part) && data_range(task.stripe, part, task.block).bytes() == 0;
    (no_bytes ? zeros : others).push_back(part);
  }
  zeros.insert(zeros.end(), others.begin(), others.end());
  zeros.resize(std::min<size_t>(zeros.size(), geometry.data_parts()));
  return zeros;
}

namespace {
/// Room for a record, so that its block begins at a multiple of the widest vectors.
constexpr size_t kBlockAt = 64;

/// One block of a stripe, made of K others.
class BlockMaker {
 public:
  static Result<BlockMaker> create(const RebuildPlan& plan) {
    const StripeGeometry& geometry = plan.group().geometry();
    VARVE_ASSIGN(ErasureCode code, ErasureCode::create(geometry.data_parts(), geometry.parity_parts()));
    return BlockMaker(plan, std::move(code));
  }

  /// What has to be fetched for a task, and where to.
  void prepare(const RebuildPlan::Task& task);
  std::span<const BlockRequest> requests() const { return requests_; }
  std::span<const MutableByteSpan> into() const { return into_; }
  /// The block of the task that was prepared, once the requests are fulfilled. corrupt if one of them is not what it
  /// should be.
  Result<ByteSpan> make(const RebuildPlan::Task& task);

 private:
  BlockMaker(const RebuildPlan& plan, ErasureCode code)
      : plan_(plan), code_(std::move(code)), room_(code_.data_parts()), target_(kParityBlockBytes) {}
  /// Where the block of a source lies; its record's checksum lies before it.
  MutableByteSpan room(size_t source) {
    if (room_[source].size() == 0) room_[source] = Buffer(kBlockAt + kParityBlockBytes);
    return room_[source];
  }
  void request(const RebuildPlan::Task& task, uint32_t part, size_t source);
  Status check(const RebuildPlan::Task& task, uint32_t part, size_t source);

  const RebuildPlan& plan_;
  ErasureCode code_;
  std::optional<ErasureCode::Repair> repair_;  ///< of the last task: most have the same
  std::vector<uint32_t> sources_;
  std::vector<BlockRequest> requests_;
  std::vector<MutableByteSpan> into_;
  std::vector<Buffer> room_;
  Buffer target_;
};

void BlockMaker::request(const RebuildPlan::Task& task, uint32_t part, size_t source) {
  const ParityGroup& group = plan_.group();
  BlockRequest request;
  request.member = plan_.member_of(task.stripe, part);
  if (plan_.is_parity(part)) {
    const uint32_t row = part - group.geometry().data_parts();
    request.kind = BlockRequest::Kind::parity_file;
    request.offset = group.record_offset(request.member, row, task.block);
    request.bytes = group.record_bytes(request.member, row, task.block);
    into_.push_back(room(source).subspan(kBlockAt - kRecordSumBytes, request.bytes));
  } else {
    const ByteRange range = plan_.data_range(task.stripe, part, task.block);
    if (range.bytes() == 0) return;
    request.offset = range.begin;
    request.bytes = range.bytes();
    into_.push_back(room(source).subspan(kBlockAt, request.bytes));
  }
  requests_.push_back(request);
}

void BlockMaker::prepare(const RebuildPlan::Task& task) {
  requests_.clear();
  into_.clear();
  sources_ = plan_.sources(task);
  for (size_t source = 0; source < sources_.size(); ++source) request(task, sources_[source], source);
}

Status BlockMaker::check(const RebuildPlan::Task& task, uint32_t part, size_t source) {
  const ParityGroup& group = plan_.group();
  const uint32_t member = plan_.member_of(task.stripe, part);
  const uint64_t block_bytes = group.geometry().block_bytes(task.stripe, task.block);
  if (plan_.is_parity(part)) {
    const uint64_t offset = group.record_offset(member, part - group.geometry().data_parts(), task.block);
    const auto record = room(source).subspan(kBlockAt - kRecordSumBytes, kRecordSumBytes + block_bytes);
    return open_parity_record(group, member, offset, record).status();
  }
  const uint64_t bytes = plan_.data_range(task.stripe, part, task.block).bytes();
  const auto block = room(source).subspan(kBlockAt, block_bytes);
  std::fill(block.begin() + static_cast<ptrdiff_t>(bytes), block.end(), std::byte{0});
  if (bytes == 0 || crc32c(block.first(bytes)) == group.block_sum(member, part, task.block)) return {};
  return Status::corrupt("protected data are not what they were", group.name_of(member));
}

Result<ByteSpan> BlockMaker::make(const RebuildPlan::Task& task) {
  const uint64_t block_bytes = plan_.group().geometry().block_bytes(task.stripe, task.block);
  std::vector<ByteSpan> blocks;
  for (size_t source = 0; source < sources_.size(); ++source) {
    VARVE_TRY(check(task, sources_[source], source));
    blocks.emplace_back(room(source).subspan(kBlockAt, block_bytes));
  }
  if (!repair_ || repair_->sources() != sources_ || repair_->targets().front() != task.part) {
    VARVE_ASSIGN(repair_, code_.repair(sources_, {task.part}));
  }
  const auto target = MutableByteSpan(target_).first(block_bytes);
  VARVE_TRY(repair_->apply(blocks, std::span(&target, 1)));
  return ByteSpan(target);
}

/// What an earlier attempt has left over.
Status remove_unfinished_files(FileSystem& fs, const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, fs.list(folder));
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory && entry.name.ends_with(kUnfinishedSuffix)) {
      VARVE_TRY(fs.remove(join_path(folder, entry.name)));
    }
  }
  return {};
}

/// Makes what a member lost, and puts it where it belongs.
class MemberRebuilder {
 public:
  MemberRebuilder(FileSystem& fs, const std::string& folder, const RebuildPlan& plan, uint32_t position)
      : fs_(fs), folder_(folder), plan_(plan), position_(position), survey_(plan.survey(position)) {}
  Status begin();
  std::span<const BlockRequest> requests() const { return maker_->requests(); }
  std::span<const MutableByteSpan> into() const { return maker_->into(); }
  void prepare(const RebuildPlan::Task& task) { maker_->prepare(task); }
  Status put(const RebuildPlan::Task& task);
  Status finish();
  /// Removes a redundancy file that was not completed.
  void give_up();

 private:
  std::string parity_path() const { return join_path(folder_, kParityFileName); }
  std::string unfinished_parity_path() const { return parity_path() + std::string(kUnfinishedSuffix); }
  Status put_data(const RebuildPlan::Task& task, ByteSpan block);

  FileSystem& fs_;
  const std::string& folder_;
  const RebuildPlan& plan_;
  uint32_t position_;
  const MemberSurvey& survey_;
  std::optional<BlockMaker> maker_;
  std::optional<ParityFileWriter> parity_;
  std::optional<LostFilesWriter> files_;
};

Status MemberRebuilder::begin() {
  const ParityGroup& group = plan_.group();
  VARVE_TRY(remove_unfinished_files(fs_, folder_));
  VARVE_ASSIGN(BlockMaker maker, BlockMaker::create(plan_));
  maker_.emplace(std::move(maker));
  files_.emplace(fs_, folder_, group.member(position_), survey_.lost_files, group.group().algorithm);
  if (!survey_.parity_lost) return {};
  VARVE_ASSIGN(ParityFileWriter parity, ParityFileWriter::create(fs_, unfinished_parity_path(), group, position_));
  parity_.emplace(std::move(parity));
  return {};
}

Status MemberRebuilder::put(const RebuildPlan::Task& task) {
  VARVE_ASSIGN(const ByteSpan block, maker_->make(task));
  return plan_.is_parity(task.part) ? parity_->append(block) : put_data(task, block);
}

Status MemberRebuilder::put_data(const RebuildPlan::Task& task, ByteSpan block) {
  const ByteRange range = plan_.data_range(task.stripe, task.part, task.block);
  const ByteSpan data = block.first(range.bytes());
  if (crc32c(data) != plan_.group().block_sum(position_, task.part, task.block)) {
    return Status::corrupt("rebuilt data are not what they were", plan_.group().name_of(position_));
  }
  return files_->write(range.begin, data);
}

Status MemberRebuilder::finish() {
  VARVE_TRY(files_->finish());
  if (!parity_) return {};
  // The redundancy file comes last: who finds it finds the files that it names, unless they were damaged since.
  VARVE_TRY(parity_->finish());
  VARVE_TRY(fs_.rename(unfinished_parity_path(), parity_path()));
  return fs_.sync_directory(folder_);
}

void MemberRebuilder::give_up() {
  if (!parity_) return;
  parity_.reset();
  fs_.remove(unfinished_parity_path()).ignore("a leftover is harmless, and goes with the next attempt");
}
}  // namespace

Status rebuild(FileSystem& fs, const std::string& folder, const RebuildPlan& plan, uint32_t position,
               BlockExchange& exchange) {
  if (position >= plan.group().members()) return Status::invalid_argument("a failure group has no such position");
  MemberRebuilder member(fs, folder, plan, position);
  const std::vector<RebuildPlan::Task> tasks = plan.tasks(position);
  Status status = plan.survey(position).anything_lost() ? member.begin() : Status();
  // A member that has failed, or is done, still takes part in every round.
  for (uint64_t round = 0; round < plan.rounds(); ++round) {
    if (!status.ok() || round >= tasks.size()) {
      const Status idle = exchange.fetch({}, {});
      if (status.ok()) status = idle;
      continue;
    }
    member.prepare(tasks[round]);
    status = exchange.fetch(member.requests(), member.into());
    if (status.ok()) status = member.put(tasks[round]);
  }
  if (status.ok() && plan.survey(position).anything_lost()) status = member.finish();
  if (!status.ok()) member.give_up();
  return status;
}

Status make_parity(FileSystem& fs, const std::string& folder, const ParityGroup& group, uint32_t position,
                   BlockExchange& exchange) {
  std::vector<MemberSurvey> surveys;
  for (uint32_t each = 0; each < group.members(); ++each) {
    surveys.push_back(MemberSurvey::all_whole(group, each));
    surveys.back().parity_lost = true;
  }
  VARVE_ASSIGN(const RebuildPlan plan, RebuildPlan::create(group, std::move(surveys)));
  return rebuild(fs, folder, plan, position, exchange);
}

}  // namespace varve
