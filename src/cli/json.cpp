#include "cli/json.h"

namespace varve::cli {

Json to_json(const Status& status) {
  return {{"code", status_code_name(status.code())},
          {"message", status.message()},
          {"subject", status.subject()},
          {"hint", status.hint()}};
}

Json to_json(const SetRecord& record) {
  return {{"name", record.name.to_string()},
          {"job", record.name.job},
          {"step", record.name.step},
          {"created_s", record.created_s},
          {"scheme", record.scheme},
          {"policy", record.policy},
          {"chunker", record.chunker},
          {"match", record.match},
          {"rank_count", record.rank_count},
          {"file_count", record.file_count},
          {"raw_bytes", record.raw_bytes},
          {"new_bytes", record.new_bytes},
          {"stored_bytes", record.stored_bytes()},
          {"group_count", record.groups.size()}};
}

Json to_json(const LevelCopy& copy) {
  return {{"level", copy.level}, {"set", copy.name.to_string()}, {"sent_bytes", copy.sent_bytes}};
}

Json to_json(const std::vector<SetName>& names) {
  Json list = Json::array();
  for (const SetName& name : names) list.push_back(name.to_string());
  return list;
}

std::string json_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n'; }

}  // namespace varve::cli
