#include "instrument/files/read_budget.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "instrument/dump/containers/json_lines.h"
#include "instrument/dump/containers/manifest.h"
#include "instrument/dump/containers/npz.h"
#include "instrument/dump/containers/pt.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"
#include "tests/zip_builder.h"

// Sanitizers have allocators of their own, which cannot be replaced as a whole.
#if !defined(__has_feature)
#define NANSCOPE_COUNTS_MEMORY 1
#elif !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer)
#define NANSCOPE_COUNTS_MEMORY 1
#endif

#ifdef NANSCOPE_COUNTS_MEMORY
/// Files that are made to grow when they are read, each of half a megabyte: what is live at once is counted by the
/// allocator itself.
namespace {

std::atomic<std::int64_t> live = 0;
std::atomic<std::int64_t> peak = 0;

void* counted(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  live += static_cast<std::int64_t>(malloc_usable_size(memory));
  if (live > peak) peak = live.load();
  return memory;
}

void discounted(void* memory) {
  if (memory == nullptr) return;
  live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { discounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { discounted(memory); }

namespace nanscope {
namespace {

constexpr std::size_t kBytes = 512 << 10;

/// What `read` holds at most, beyond what was there before.
std::int64_t peak_of(const std::function<std::string()>& read, std::string& message) {
  const std::int64_t before = live;
  peak = before;
  message = read();
  return peak - before;
}

/// `item` of ever new short names, until there are kBytes of them.
std::string many(const std::function<std::string(const std::string&)>& item, const std::string& between = ",") {
  std::string text;
  for (int i = 0; text.size() < kBytes; ++i) {
    std::string name;
    for (int rest = i; rest > 0 || name.empty(); rest /= 26) name += static_cast<char>('a' + rest % 26);
    text += (i > 0 ? between : "") + item(name);
  }
  return text;
}

std::string times(const std::string& text) {
  std::string all;
  while (all.size() < kBytes) all += text;
  return all;
}

std::string safetensors(const std::string& header) {
  std::string file;
  ZipBuilder::number(header.size(), 8, file);
  return file + header;
}

std::string read_safetensors(const std::string& file) {
  const auto read = parse_safetensors(std::as_bytes(std::span(file)), "file");
  return read ? "" : read.error().message;
}

std::string read_pickle_of(const std::string& opcodes) {
  static std::string archive;  // made before anything is counted
  archive = ZipBuilder({{.name = "a/data.pkl", .data = "\x80\x02" + opcodes},
                        {.name = "a/data/0", .data = std::string(96, '\1')}})
                .bytes;
  return archive;
}

std::string read_pt(const std::string& file) {
  const auto read = open_pt({"file", std::as_bytes(std::span(file)), nullptr});
  return read ? "" : read.error().message;
}

std::string read_npz(const std::string& file) {
  const auto read = open_npz({"file", std::as_bytes(std::span(file)), nullptr});
  return read ? "" : read.error().message;
}

struct Growing {
  const char* what;
  std::string file;
  std::string (*read)(const std::string& file);
};

std::vector<Growing> growing_files() {
  const std::string fields = "{" + many([](const std::string& name) { return fmt::format("\"{}\":1", name); }) + "}";
  const std::string lists = "h" + std::string(1, '\0') + "Na0h\1Na0";
  return {
      {"safetensors: entries",
       safetensors("{" + many([](const std::string& name) {
                     return fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", name);
                   }) +
                   "}"),
       read_safetensors},
      {"safetensors: unknown types",
       safetensors("{" + many([](const std::string& name) {
                     return fmt::format(R"("{}":{{"dtype":"X","shape":[],"data_offsets":[0,0]}})", name);
                   }) +
                   "}"),
       read_safetensors},
      {"safetensors: members", safetensors(fields), read_safetensors},
      {"safetensors: metadata",
       safetensors("{\"__metadata__\":{" + many([](const std::string& n) { return fmt::format("\"{}\":\"\"", n); }) +
                   "}}"),
       read_safetensors},
      {"safetensors: lists", safetensors("{\"a\":[" + times("[],") + "1]}"), read_safetensors},
      {"pt: values", read_pickle_of("(" + times("N") + "l."), read_pt},
      {"pt: lists", read_pickle_of("(" + times("]") + "t."), read_pt},
      {"pt: memos", read_pickle_of("N" + times("\x94") + "."), read_pt},
      {"pt: what is remembered",
       read_pickle_of("Nq" + std::string(1, '\0') + "(" + times(std::string("h\0", 2)) + "t."), read_pt},
      {"pt: lists that grow in turns", read_pickle_of("]q" + std::string(1, '\0') + "]q\1" + times(lists) + "."),
       read_pt},
      {"pt: a long name for many values",
       read_pickle_of("}X" + std::string("\x40\x0d\x03\0", 4) + std::string(200000, 'k') + "(" + times("N") + "ts."),
       read_pt},
      {"npz: members",
       ZipBuilder([] {
         std::vector<ZipEntry> entries;
         for (int i = 0; i < 5000; ++i) entries.push_back({.name = std::to_string(i)});
         return entries;
       }())
           .bytes,
       read_npz},
  };
}

TEST(ReadBudget, HoldsForFilesThatAreMadeToGrow) {
  for (const Growing& growing : growing_files()) {
    std::string message;
    const std::int64_t most = peak_of([&] { return growing.read(growing.file); }, message);
    EXPECT_LE(most, static_cast<std::int64_t>(read_budget(growing.file.size()))) << growing.what << ": " << message;
    RecordProperty(growing.what, fmt::format("{} bytes of {}: {}", most, growing.file.size(), message));
  }
}

TEST(ReadBudget, HoldsForManifests) {
  const TemporaryFolder folder;
  std::ofstream(folder / "data.bin", std::ios::binary) << std::string(42, '\1');
  const auto entry = [](const std::string& file) {
    return [file](const std::string& name) {
      return fmt::format(R"({{"name":"{}","file":"{}","dtype":"u8","shape":[0]}})", name, file);
    };
  };
  const std::string fields = many([](const std::string& name) { return fmt::format("\"{}\":1", name); });
  const std::pair<std::string, std::string> files[] = {
      {"manifest.json", "{\"tensors\":[" + many(entry("data.bin")) + "]}"},
      {"manifest.json", "{\"tensors\":[" + many(entry("absent")) + "]}"},
      {"manifest.json", "{\"tensors\":[" + times("1,") + "1]}"},
      {"manifest.json", "{\"tensors\":[]," + fields + "}"},
      {"manifest.json", R"({"tensors":[{"name":")" + std::string(200000, 'n') +
                            R"(","file":"data.bin","dtype":"u8","shape":[42],)" + fields + "}]}"},
      {"manifest.jsonl", many(entry("data.bin"), "\n")},
      {"manifest.jsonl", many(entry("absent"), "\n")},
  };
  for (const auto& file : files) {
    const std::string& text = file.second;
    std::string message;
    const std::int64_t most = peak_of(
        [&] {
          const auto read = read_manifest(std::as_bytes(std::span(text)), folder / file.first);
          return read ? "" : read.error().message;
        },
        message);
    EXPECT_LE(most, static_cast<std::int64_t>(read_budget(text.size() + 42 + 4096)))
        << text.substr(0, 80) << ": " << message;
  }
}

/// What a server's dump holds is read: names of usual length, one element a tensor.
TEST(ReadBudget, IsEnoughForSmallTensors) {
  const auto name = [](const std::string& n) { return fmt::format("model.layers.12.self_attn.q_proj.{}.input.0", n); };
  const std::string header = many([&](const std::string& n) {
    return fmt::format(R"("{}":{{"dtype":"BF16","shape":[1, 0],"data_offsets":[0,0]}})", name(n));
  });
  EXPECT_EQ(read_safetensors(safetensors("{" + header + "}")), "");
  const TemporaryFolder folder;
  const std::string entries = many([&](const std::string& n) {
    return fmt::format(R"({{"name":"{}","file":"data.bin","dtype":"bf16","shape":[1, 0], "offset": 0}})", name(n));
  });
  std::ofstream(folder / "data.bin", std::ios::binary) << "x";
  const std::string manifest = "{\"tensors\":[" + entries + "]}";
  const auto read = read_manifest(std::as_bytes(std::span(manifest)), folder / "manifest.json");
  EXPECT_TRUE(read) << read.error().message;
}

TEST(ReadBudget, NamesTheOffsetWhereItEnds) {
  const std::string file = read_pickle_of("(" + times("N") + "l.");
  EXPECT_THAT(read_pt(file),
              testing::MatchesRegex("file: a/data.pkl: offset [0-9]+: the [0-9]+ values of the pickle so "
                                    "far would take more than four times the file in memory.*"));
}

}  // namespace
}  // namespace nanscope
#endif
