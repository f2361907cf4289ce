#include "engine/bundle.h"

#include <map>
#include <string>
#include <tuple>

#include "codec/across.h"
#include "engine/pack_builder.h"

namespace varve {

namespace {
/// Less is not worth a trial.
constexpr uint64_t kBundleBytesMin = 128_KiB;
/// A trial looks at so many pieces of each variable, of so many numbers.
constexpr uint64_t kPieces = 2, kPieceNumbers = 2048;
/// A trial is of each with each other.
constexpr size_t kCandidatesMax = 64;

/// What classes have in common that may be a bundle: the group that their variables are in, their type, and of each
/// variable its file, its length and the dimensions of its array.
using Likeness = std::tuple<std::string, std::string, std::vector<uint64_t>>;

bool may_be_bundled(const SaveOptions& options) {
  return options.scheme == Scheme::aware && options.chunker.kind == ChunkerKind::fixed &&
         options.codec.predicts_across();
}

std::string group_of(const std::string& class_key) { return class_key.substr(0, class_key.rfind('/') + 1); }

Likeness likeness_of(const std::string& class_key, const ClassStreams& streams) {
  std::vector<uint64_t> places;
  for (const Stream* stream : streams) {
    places.insert(places.end(), {stream->file, stream->bytes, stream->dims.size()});
    places.insert(places.end(), stream->dims.begin(), stream->dims.end());
  }
  return {group_of(class_key), streams.front()->type.name(), std::move(places)};
}

/// Some pieces of a stream, all with the same place in each variable of a bundle.
struct Pieces {
  std::vector<uint64_t> begins;
  uint64_t bytes = 0;
  PackShape shape;
};

Pieces pieces_of(const Stream& stream) {
  const uint64_t elements = stream.bytes / stream.type.bytes;
  Pieces pieces{.begins = {0}, .bytes = stream.bytes, .shape = {.type = stream.type, .runs = {}}};
  uint64_t piece = elements;
  if (elements > kPieces * kPieceNumbers) {
    piece = kPieceNumbers;
    pieces.begins.clear();
    const uint64_t gap = (elements - kPieces * piece) / (kPieces + 1);
    for (uint64_t i = 0; i < kPieces; ++i) pieces.begins.push_back((gap + i * (piece + gap)) * stream.type.bytes);
    pieces.bytes = piece * stream.type.bytes;
  }
  for (size_t i = 0; i < pieces.begins.size(); ++i) pieces.shape.runs.push_back({piece, stream.dims, false});
  return pieces;
}

/// `classes`, by id, are alike: makes a bundle of those that predict each other.
Status try_bundle(Source& source, const std::vector<ClassStreams>& streams, const std::vector<uint32_t>& classes,
                  Effort effort, GroupStreams& group) {
  const ClassStreams& any = streams[classes.front()];
  const auto longest =
      std::max_element(any.begin(), any.end(), [](const Stream* a, const Stream* b) { return a->bytes < b->bytes; });
  const auto ordinal = static_cast<size_t>(longest - any.begin());
  const Pieces pieces = pieces_of(**longest);
  StreamGatherer reader(source);
  std::vector<ByteVector> samples;
  for (const uint32_t id : classes) {
    ByteVector& sample = samples.emplace_back(pieces.begins.size() * pieces.bytes);
    for (size_t i = 0; i < pieces.begins.size(); ++i) {
      VARVE_TRY(reader.read(*streams[id][ordinal], pieces.begins[i],
                            MutableByteSpan(sample).subspan(i * pieces.bytes, pieces.bytes)));
    }
  }
  const std::vector<ByteSpan> all(samples.begin(), samples.end());
  const Predictions found = find_predictions(pieces.shape, all);
  if (found.order.size() < 2) return {};
  VARVE_ASSIGN(const bool worth, worth_together(pieces.shape, all, found, effort));
  if (!worth) return {};

  const std::string& first = group.class_keys[classes[found.order.front()]];
  const std::string name = group_of(first);
  const size_t name_end = first.rfind('_', first.rfind('_') - 1);
  group.bundle_keys.push_back(name + "{" + first.substr(name.size(), name_end - name.size()) + " and " +
                              std::to_string(found.order.size() - 1) + " more}" + first.substr(name_end));
  std::vector<uint32_t> position_of(classes.size());
  for (uint32_t position = 0; position < found.order.size(); ++position) {
    const uint32_t variable = found.order[position];
    position_of[variable] = position;
    Stream::Bundle place{.number = static_cast<uint32_t>(group.bundle_keys.size()),
                         .position = position,
                         .classes = static_cast<uint32_t>(found.order.size()),
                         .reference = {}};
    if (found.reference[variable]) place.reference = position_of[*found.reference[variable]];
    for (Stream* stream : streams[classes[variable]]) stream->bundle = place;
  }
  return {};
}
}  // namespace

Status find_bundles(Source& source, const SaveOptions& options, GroupStreams& group) {
  if (!may_be_bundled(options)) return {};
  const std::vector<ClassStreams> streams = streams_by_class(group);
  std::map<Likeness, std::vector<uint32_t>> alike;
  for (uint32_t id = 0; id < streams.size(); ++id) {
    const ClassStreams& all = streams[id];
    uint64_t bytes = 0;
    bool whole = !all.empty() && predicts_across(all.front()->type);
    for (const Stream* stream : all) {
      bytes += stream->bytes;
      whole = whole && stream->position > 0 && stream->type == all.front()->type;
    }
    if (!whole || bytes == 0) continue;
    alike[likeness_of(group.class_keys[id], all)].push_back(id);
  }
  // With effort best, what balanced tries will do: both find the same bundles.
  const Effort effort = std::min(options.codec.effort, Effort::balanced);
  for (const auto& [likeness, classes] : alike) {
    uint64_t bytes = 0;
    for (const Stream* stream : streams[classes.front()]) bytes += stream->bytes * classes.size();
    if (classes.size() < 2 || classes.size() > kCandidatesMax || bytes < kBundleBytesMin) continue;
    VARVE_TRY(try_bundle(source, streams, classes, effort, group));
  }
  return {};
}

}  // namespace varve
