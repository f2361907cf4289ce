#include "aggregate/save_part.h"

#include "aggregate/save_groups.h"

namespace varve {

Result<SetRecord> save_part(const Store& store, Source& source, const PartName& name, const SaveOptions& options,
                            ProgressSink& progress) {
  VARVE_TRY(check_save_options(options));
  VARVE_TRY(check_job_name(name.set.job));
  VARVE_ASSIGN(SaveReport report, save_groups(store, {&source}, name.set, options, progress,
                                              [&](WriterLease& lease, const SetRecord& record) {
                                                return lease.publish_part(name, record);
                                              }));
  return std::move(report.record);
}

}  // namespace varve
