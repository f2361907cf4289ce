// Writes the inputs that fuzzing begins with: make_fuzz_seeds FOLDER makes a folder in it for each target. They are
// what the library itself writes, and the files that tests are made of.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "codec/codec.h"
#include "codec/deflater.h"
#include "codec/opened.h"
#include "core/memory_file_system.h"
#include "engine/folder_source.h"
#include "engine/save.h"
#include "format/tree.h"
#include "fuzzed_pack.h"
#include "layout/layout.h"
#include "serve/offer.h"
#include "serve/test_requests.h"
#include "service/protocol.h"
#include "service/wire.h"
#include "sets/saving.h"
#include "store/arena_reader.h"
#include "store/catalog.h"
#include "zoo/array_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

namespace files = std::filesystem;

class Seeds {
 public:
  Seeds(files::path folder, std::string target) : folder_(std::move(folder) / target) {
    files::create_directories(folder_);
  }
  void add(ByteSpan contents) { test::write_file((folder_ / std::to_string(count_++)).string(), contents); }
  void add(std::string_view text) { add(as_bytes(text)); }

 private:
  files::path folder_;
  size_t count_ = 0;
};

std::string sample(const char* dump) { return std::string(VARVE_SAMPLE_FOLDER) + "/" + dump; }

void make_descriptions(const files::path& folder) {
  Seeds seeds(folder, "sidecar");
  for (const char* text : {"f64:128,128,64", "f32be", "i32:1000@512", "u8:10000", "bytes80:125@0"}) seeds.add(text);
  seeds.add(R"({"variables": [{"name": "/Fluid/Temperature", "type": "f64", "shape": [16, 64], "offset": 512},
      {"name": "time", "type": "f64"}, {"name": "ids", "type": "u32be", "shape": [100], "offset": 9000}]})");
  seeds.add(R"({"variables": [{"name": "/density", "global_shape": [24, 400], "global_offset": [18, 0]}]})");
}

void make_descriptions_of_arrays(const files::path& folder) {
  Seeds pickles(folder, "torch_pickle"), zarr(folder, "zarr");
  pickles.add(zoo::torch_pickle());
  zarr.add(R"({"zarr_format":2,"shape":[10,30],"chunks":[5,10],"dtype":"<f4","compressor":null,"filters":null,
      "order":"F","fill_value":"NaN","dimension_separator":"."})");
  zarr.add(R"({"zarr_format":3,"node_type":"array","shape":[10,30],"data_type":"complex64",
      "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[5,10]}},
      "chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},
      "codecs":[{"name":"bytes","configuration":{"endian":"big"}}],"fill_value":0})");
}

void make_boxes(const files::path& folder) {
  Seeds seeds(folder, "box_text");
  // The number of dimensions, and which extents they have.
  for (const char* text : {"[2:5,:,7]", "temperature[:10]", "[1,2,3]", "[5:]", "[:]", "[-1]", "[0:2:1]", ""})
    seeds.add(std::string("\3\3\2\3") + text);
}

/// One part of the sample's files, and what readers say of them.
void make_layouts(const files::path& folder) {
  OfferedFiles offered;
  SaveOptions options;
  options.ranks.group_size = 4;
  const auto groups = split_into_groups(
      find_files(look_at_source(sample("DD0006")).value(), options, null_progress()).value(), options);
  Seeds offers(folder, "offers"), layouts(folder, "layout_codec");
  for (const auto& group : groups) {
    FolderSource source(sample("DD0006"), group, test::layout_service(), {});
    offered = {options, source.files(), source.layouts(null_progress()).value()};
    offers.add(encode_offered_files(offered));
    for (const Layout& layout : offered.layouts) {
      ByteVector raw;
      ByteWriter out(raw);
      encode_layout(layout, out);
      layouts.add(raw);
    }
  }
}

/// Arenas, records and tree nodes of small sets; packs are given anew, as a target takes them.
void make_store(const files::path& folder) {
  MemoryFileSystem fs;
  const auto store = test::make_store(fs);
  const test::TempFolder saved;
  for (uint64_t step : {1, 2, 3}) {
    for (uint64_t rank : {0, 1}) {
      const std::string name = "x." + std::to_string(rank);
      test::write_file(saved / (name + ".dat"), test::smooth_field(500 * step, rank));
      files::copy_file(sample("DD0006") + "/XX1000.cpu000" + std::to_string(rank), saved / name,
                       files::copy_options::overwrite_existing);
    }
    test::write_file(saved / "notes/readme", "step " + std::to_string(step));
    if (step == 1) files::create_symlink("readme", saved / "notes/link");
    SaveOptions options = test::save_options("run", step);
    options.ranks.group_size = 1;
    options.pack_bytes = 64_KiB;
    const Status done = save_folder(*store, saved.path(), options, test::layout_service()).status();
    if (!done.ok()) throw std::runtime_error(done.to_string());
  }
  Seeds arenas(folder, "arena"), records(folder, "set_record"), nodes(folder, "tree"), packs(folder, "pack");
  for (const DirectoryEntry& entry : fs.list(store->arenas_path()).value()) {
    const std::string path = store->arenas_path() + "/" + entry.name;
    arenas.add(read_file(fs, path, 16_MiB).value());
    const ArenaId id = UniqueId::parse(entry.name.substr(0, 32)).value();
    const auto reader = ArenaReader::open(store->backend(), path, id, store->id(), store->score()).value();
    for (size_t i = 0; i < reader->index().nodes.size(); ++i) nodes.add(reader->read_node(i).value());
    for (size_t i = 0; i < reader->index().packs.size(); ++i) {
      const auto frame = reader->read_raw(FrameKind::pack, i).value();
      packs.add(frame.meta);
      packs.add(encode_fuzzed_pack(decode_pack_meta(frame.meta, store->score()).value(), frame.body));
    }
  }
  for (const SetName& name : Catalog(*store).sets().value()) {
    const ByteVector raw = encode_set_record(Catalog(*store).read(name).value(), store->score());
    records.add(ByteSpan(raw).first(raw.size() - store->score().score_bytes()));
  }
}

/// Packs of what was opened in so many bytes, with and without sections.
void add_opened(Seeds& seeds, const Opened& opened, uint64_t raw_bytes) {
  const uint64_t bytes = opened.bytes.size();
  const EncodedBytes encoded =
      encode_chain(CodecChain::parse("zstd").value(), opened.bytes, {{}, {{bytes, {}}}}).value();
  for (const EncodedBytes& content : {encoded, joined({{bytes, encoded}})}) {
    const EncodedBytes pack = behind_stage(opened.stage, raw_bytes, opened.params, content);
    PackMeta meta;
    meta.recipe = pack.recipe;
    meta.chunks = {{static_cast<uint32_t>(raw_bytes), {}}};
    seeds.add(encode_fuzzed_pack(meta, pack.body));
  }
}

/// What a program deflated, with and without HDF5's shuffle, as it is opened, also by sections.
void make_deflated_packs(Seeds& seeds) {
  const ByteVector field = test::smooth_field(1000, 1);
  ByteVector params, planes, raw;
  const PackShape doubles{{ElementKind::floating, ByteOrder::little, 8}, {{1000, {}}}};
  find_codec(CodecNumber::shuffle).value()->encode(field, doubles, 8, params, planes).ignore("it takes any bytes");
  for (const ByteVector& content : {field, planes}) {
    ByteVector stream(2 * content.size());
    stream.resize(Deflater().make(content, {.level = 6, .memory_level = 1}, stream));
    raw.insert(raw.end(), {std::byte{0x78}, std::byte{0x9c}});
    raw.insert(raw.end(), stream.begin(), stream.end());
  }
  add_opened(seeds, open_deflated(raw), raw.size());
}

/// The frames of FORMAT.md's example, of which lz4 has one, and of what was not compressed.
void make_packs_of_frames(Seeds& seeds) {
  using namespace std::string_view_literals;
  constexpr std::string_view frames =
      "> \2\1\x20\1\x24\0\0\0\x24\0\0\0\x37\0\0\0\x14\0\0\0\x1f\0\0\0\xc2one fish two\x09\0\x32red\x09\0\x90"
      "blue fish\2\1\x22\1\x05\0\0\0\x05\0\0\0\x15\0\0\0whole."sv;
  add_opened(seeds, open_blosc(as_bytes(frames)), frames.size());
}

/// A pack of every codec of this build, alone and before another.
void make_packs(const files::path& folder) {
  Seeds seeds(folder, "pack/chains");
  const ByteVector raw = test::smooth_field(1000, 1);
  const PackShape shape{{ElementKind::floating, ByteOrder::little, 8}, {{1000, {10, 10, 10}, true}}};
  const ByteVector constant(raw.size(), std::byte{7});
  make_deflated_packs(seeds);
  make_packs_of_frames(seeds);
  for (const Codec* codec : all_codecs()) {
    for (const char* second : {"", "+zstd", "+lzma"}) {
      const Result<CodecChain> chain = CodecChain::parse(std::string(codec->name()) + second);
      for (const ByteVector& bytes : {raw, constant}) {
        const EncodedBytes encoded = encode_chain(chain.value(), bytes, shape).value();
        PackMeta meta;
        meta.recipe = encoded.recipe;
        meta.chunks = {{4000, {}}, {1000, {}}, {3000, {}}};
        seeds.add(encode_fuzzed_pack(meta, encoded.body));
        // The same bytes as what is left of a larger pack.
        meta.chunks.insert(meta.chunks.begin() + 1, {500, {}});
        meta.held_runs = {1, 1, 2};
        seeds.add(encode_fuzzed_pack(meta, encoded.body));
      }
    }
  }
}

/// Keeps what is sent.
class KeepingStream final : public ByteStream {
 public:
  explicit KeepingStream(ByteVector& kept) : kept_(kept) {}
  Result<size_t> read_some(MutableByteSpan, Deadline) override { return size_t{0}; }
  Status write(std::span<const ByteSpan> parts, Deadline) override {
    for (const ByteSpan& part : parts) kept_.insert(kept_.end(), part.begin(), part.end());
    return {};
  }

 private:
  ByteVector& kept_;
};

/// A message as the targets take it: as a frame, and as its first bytes and its fields.
void add_message(Seeds& seeds, WireHeader header, ByteSpan prefix, ByteSpan fields) {
  ByteVector frame, plain(prefix.begin(), prefix.end());
  const ByteVector data(header.data_bytes, std::byte{1});
  if (Wire(std::make_unique<KeepingStream>(frame)).send(header, fields, data, after_seconds(60)).ok()) seeds.add(frame);
  plain.insert(plain.end(), fields.begin(), fields.end());
  seeds.add(plain);
}

void make_messages(const files::path& folder) {
  Seeds requests(folder, "requests"), replies(folder, "replies");
  for_each_message([&](auto empty) {
    using Message = decltype(empty);
    const auto request = filled<Message>();
    WireHeader header;
    header.message = Message::kMessage.number;
    if constexpr (requires { request.prefix_count; })
      header.data_bytes = static_cast<uint32_t>(8 * request.prefix_count);
    const std::byte prefix[] = {std::byte{header.message}, {}, static_cast<std::byte>(header.data_bytes / 8)};
    add_message(requests, header, prefix, encode_fields(request));
    header.data_bytes = 0;
    header.flags = WireHeader::kReply;
    for (const ReplyTo<Message>& reply : {ReplyTo<Message>(filled<typename Message::ReplyFields>()),
                                          ReplyTo<Message>(Status::not_found("gone", "", "look elsewhere"))})
      add_message(replies, header, ByteSpan(prefix).first(1), encode_fields(reply));
  });
  ByteVector entries;
  append_entry(entries, {"arenas", true});
  append_entry(entries, {"varve.store", false});
  replies.add(entries);
}

/// Replies of S3 services, also where this build has no client of theirs.
void make_s3_replies(const files::path& folder) {
  Seeds seeds(folder, "s3_replies");
  seeds.add(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><EncodingType>url</EncodingType>"
      "<IsTruncated>true</IsTruncated><NextContinuationToken>1ue=</NextContinuationToken><Contents><Key>a%2Fb+c</Key>"
      "<LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>434</Size></Contents>"
      "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></ListBucketResult>");
  seeds.add(
      "<ListMultipartUploadsResult><NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker>"
      "<IsTruncated>true</IsTruncated><Upload><Key>k</Key><UploadId>i</UploadId>"
      "<Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload></ListMultipartUploadsResult>");
  seeds.add("<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
  seeds.add("<CompleteMultipartUploadResult><ETag>&quot;e-2&quot;</ETag></CompleteMultipartUploadResult>");
  seeds.add("<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>");
  seeds.add("<Error><Code>NoSuchKey</Code><Message>There is none.</Message></Error>");
  seeds.add("Sun, 06 Nov 1994 08:49:37 GMT");
}

void make_files(const files::path& folder) {
  zoo::make_elf_cores(folder / "elf_core");
  zoo::make_netcdf_files(folder / "netcdf");
  zoo::make_npy_files(folder / "npy");
  zoo::make_zip_files(folder / "zip");
  zoo::make_torch_stream_files(folder / "torch_stream");
  zoo::make_safetensors_files(folder / "safetensors");
  zoo::make_fortran_files(folder / "fortran");
  zoo::make_hdf5_files(folder / "hdf5", {.tiny_variables = 50});
  for (const char* name : {"XX1000.cpu0000", "XX1000.cpu0007"})
    files::copy_file(sample("DD0006") + "/" + name, folder / "hdf5" / name);
}

}  // namespace
}  // namespace varve

int main(int argument_count, char** arguments) {
  if (argument_count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", arguments[0]);
    return 2;
  }
  const std::filesystem::path folder = arguments[1];
  std::filesystem::remove_all(folder);
  varve::make_descriptions(folder);
  varve::make_descriptions_of_arrays(folder);
  varve::make_boxes(folder);
  varve::make_layouts(folder);
  varve::make_store(folder);
  varve::make_packs(folder);
  varve::make_messages(folder);
  varve::make_s3_replies(folder);
  varve::make_files(folder);
  return 0;
}
