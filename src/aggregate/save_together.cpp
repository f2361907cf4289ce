#include "aggregate/save_together.h"

#include <algorithm>
#include <array>
#include <deque>

#include "aggregate/folder_source.h"
#include "aggregate/save_groups.h"
#include "aggregate/save_plan.h"
#include "aggregate/source_tree.h"
#include "comm/agreement.h"
#include "comm/process_share.h"
#include "store/set_part.h"

namespace varve {

namespace {
constexpr int kTriesMax = 3;

class TogetherSaver {
 public:
  TogetherSaver(const Store& store, const std::string& folder, SaveOptions options, LayoutService& layouts,
                Communicator& ranks, SharedProgress& progress)
      : store_(store),
        folder_(folder),
        options_(std::move(options)),
        layouts_(layouts),
        ranks_(ranks),
        progress_(progress) {}

  Result<SaveReport> run() {
    VARVE_TRY(share_plan());
    VARVE_TRY(take_share());
    const Status saved = agree(ranks_, save_share());
    const Status completed = saved.ok() ? complete() : saved;
    if (!completed.ok()) {
      withdraw_part();
      return completed;
    }
    return gather_report();
  }

 private:
  /// The first process finds out what there is to be saved; all others believe it.
  Status share_plan() {
    progress_.phase("saving");
    ByteVector raw;
    Status made;
    if (ranks_.rank() == 0) {
      made = make_plan();
      raw = encode_save_plan(plan_);
    }
    VARVE_TRY(follow_first(ranks_, made));
    VARVE_ASSIGN(const ByteVector shared, ranks_.broadcast(raw, 0));
    Result<SavePlan> plan = decode_save_plan(shared);
    VARVE_TRY(agree(ranks_, plan.status()));
    plan_ = std::move(*plan);
    return {};
  }

  Status make_plan() {
    VARVE_TRY(check_save_options(options_));
    VARVE_ASSIGN(plan_.name, choose_set_name(store_, folder_, options_));
    VARVE_TRY(Catalog(store_).check_is_new(plan_.name, kChooseAnotherStep));
    VARVE_ASSIGN(plan_.run, UniqueId::random());
    VARVE_ASSIGN(folder_itself_, look_at_folder(folder_));
    VARVE_ASSIGN(std::vector<SourceFile> files, find_files(folder_, options_.rank_regex, progress_));
    plan_.groups = split_into_groups(std::move(files), options_, ranks_.rank_count());
    return {};
  }

  /// Which groups are this process's, and which part of the set they are.
  Status take_share() {
    if (options_.thread_count == 0) {
      VARVE_ASSIGN(options_.thread_count, threads_of_process(ranks_));
    }
    auto bytes_of = [](const std::vector<SourceFile>& files) {
      uint64_t bytes = 0;
      for (const SourceFile& file : files) bytes += file.bytes;
      return bytes;
    };
    uint64_t total_bytes = 0;
    for (const std::vector<SourceFile>& files : plan_.groups) total_bytes += bytes_of(files);
    ProcessShares shares(total_bytes, ranks_.rank_count());
    std::vector<bool> has_part(ranks_.rank_count(), false);
    for (std::vector<SourceFile>& files : plan_.groups) {
      const uint32_t process = shares.take(bytes_of(files));
      has_part[process] = true;
      if (process != ranks_.rank()) continue;
      sources_.push_back(&folders_.emplace_back(folder_, std::move(files), layouts_, options_.layouts));
    }
    const auto own = has_part.begin() + static_cast<ptrdiff_t>(ranks_.rank());
    part_ = {plan_.name, plan_.run, static_cast<uint32_t>(std::count(has_part.begin(), own, true)),
             static_cast<uint32_t>(std::count(has_part.begin(), has_part.end(), true))};
    return {};
  }

  Status save_share() {
    if (sources_.empty()) return {};
    VARVE_ASSIGN(report_, save_groups(store_, sources_, plan_.name, options_, progress_,
                                      [&](WriterLease& lease, const SetRecord& record) {
                                        return lease.publish_part(part_, record);
                                      }));
    return {};
  }

  /// All parts are there: the first process makes the set of them.
  Status complete() {
    Result<SetRecord> set = Status::internal("no attempt was made");
    const Status unchanged = ranks_.rank() == 0 ? check_unchanged(folder_, folder_itself_) : Status();
    VARVE_TRY(follow_first(ranks_, unchanged));
    if (ranks_.rank() == 0) {
      for (int attempt = 0; attempt < kTriesMax; ++attempt) {
        set = complete_set(store_, plan_.run, plan_.name, part_.count);
        if (set.ok() || set.status().code() != StatusCode::busy) break;
      }
    }
    VARVE_TRY(follow_first(ranks_, set.status()));
    VARVE_ASSIGN(const ByteVector raw,
                 ranks_.broadcast(set.ok() ? encode_set_record(*set, store_.score()) : ByteVector(), 0));
    VARVE_ASSIGN(report_.record, decode_set_record(raw, store_.score()));
    return {};
  }

  /// Nothing appears if it does not appear as a whole. A set that is there after all, but was not made durable, keeps
  /// its parts.
  void withdraw_part() const {
    if (sources_.empty() || Catalog(store_).has(plan_.name)) return;
    remove_part(store_, part_).ignore("a prune gives it up after a while");
  }

  Result<SaveReport> gather_report() {
    ByteVector mine;
    ByteWriter w(mine);
    for (uint64_t number : {report_.variable_count, report_.pattern_bytes, report_.known_bytes}) w.varint(number);
    VARVE_ASSIGN(const auto all, ranks_.all_gather(mine));
    SaveReport report;
    report.record = report_.record;
    for (const std::vector<std::byte>& of_one : all) {
      ByteReader reader(of_one);
      for (uint64_t* sum : {&report.variable_count, &report.pattern_bytes, &report.known_bytes}) {
        VARVE_ASSIGN(const uint64_t number, reader.varint());
        *sum += number;
      }
    }
    return report;
  }

  const Store& store_;
  const std::string& folder_;
  SaveOptions options_;
  LayoutService& layouts_;
  Communicator& ranks_;
  SharedProgress& progress_;
  SourceFile folder_itself_;  ///< of the first process
  SavePlan plan_;
  std::deque<FolderSource> folders_;
  std::vector<Source*> sources_;
  PartName part_;
  SaveReport report_;  ///< of this process, until it is gathered
};
}  // namespace

Result<SaveReport> save_folder_together(const Store& store, const std::string& folder, SaveOptions options,
                                        LayoutService& layouts, Communicator& ranks, ProgressSink& progress) {
  if (ranks.rank_count() == 1) return save_folder(store, folder, options, layouts, progress);
  SharedProgress shared(ranks, progress);
  Result<SaveReport> report = TogetherSaver(store, folder, std::move(options), layouts, ranks, shared).run();
  const Status told = shared.tell_warnings();
  if (report.ok() && !told.ok()) return told;
  return report;
}

}  // namespace varve
