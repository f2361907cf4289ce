#include "cli/save_options.h"

#include "aggregate/rank_order.h"

namespace varve::cli {

void declare_rank_regex(Arguments& arguments, std::string& into, const std::string& help) {
  auto take = [&into](const std::string& text) -> Status {
    into = text;
    return check_rank_regex(text);
  };
  arguments.value("--rank-regex", "REGEX", take, help);
}

void SaveArguments::declare_grouping(Arguments& arguments) {
  declare_rank_regex(
      arguments, options.rank_regex,
      "how a file's path tells its rank: the expression's\nfirst group (the numbers that differ among files)");
  arguments.count("--group-size", "G", group_size_,
                  "ranks whose data are laid together (32; fewer, if\nseveral processes save)");
  auto take_raw = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.layouts.raw, parse_raw_description(text));
    return {};
  };
  arguments.value("--raw", "TYPE:NX,NY,NZ", take_raw,
                  "what files of unknown format hold, e.g.\nf64:128,128,64 or f32be:1000@512 (after 512 bytes)");
}

void SaveArguments::declare_shrinking(Arguments& arguments) {
  auto take_scheme = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.scheme, parse_scheme(text));
    return {};
  };
  arguments.value("--scheme", "SCHEME", take_scheme,
                  "order of new data: agnostic, agnostic-block, aware\n(the default) or aware-block");
  arguments.size("--block-bytes", options.block_bytes, "block of the block schemes (64KiB)", 1, 1_GiB);
  auto take_effort = [this](const std::string& text) -> Status {
    if (text != "fast" && text != "balanced" && text != "best") {
      return Status::invalid_argument("an effort is fast, balanced or best", text);
    }
    effort_given_ = true;
    VARVE_ASSIGN(options.codec, CodecPolicy::parse(text));
    return {};
  };
  arguments.value("--effort", "EFFORT", take_effort,
                  "fast, balanced (the default) or best: how much\nprocessor time a smaller store is worth");
  auto take_codec = [this](const std::string& text) -> Status {
    codec_given_ = true;
    VARVE_ASSIGN(options.codec, CodecPolicy::parse(text));
    return {};
  };
  arguments.value("--codec", "CHAIN", take_codec,
                  "one codec chain for all, e.g. store or\nlorenzo+shuffle+zstd:1, or paper (mcrEngine's)");
  auto take_match = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.match, MatchRule::parse(text));
    return {};
  };
  arguments.value(
      "--match", "RULE", take_match,
      "which variables mean the same: exact, digits (the\ndefault) or a regular expression of what to ignore");
  auto take_chunker = [this](const std::string& text) -> Status {
    VARVE_ASSIGN(options.chunker, parse_chunker(text));
    return {};
  };
  arguments.value("--chunker", "CHUNKER", take_chunker,
                  "fixed:8192 (the default), gear:AVERAGE or\nrabin:MIN,AVERAGE,MAX");
}

Result<SaveOptions> SaveArguments::take(bool several) const {
  if (effort_given_ && codec_given_) return Status::invalid_argument("--effort and --codec exclude one another");
  SaveOptions taken = options;
  taken.smaller_groups = several && group_size_ == 0;
  if (group_size_ > 0) taken.group_size = group_size_;
  return taken;
}

}  // namespace varve::cli
