#include "instrument/dump/what_it_is.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <vector>

#include "instrument/files/file.h"

namespace nanscope {
namespace {

constexpr std::size_t kLooked = 64 << 10;

struct Magic {
  std::string_view bytes;
  std::string_view is;
};

constexpr std::array kMagic = {
    Magic{"\x89HDF\r\n", "a file of HDF5, which nanscope does not read: save the arrays with numpy.savez"},
    Magic{"\x1f\x8b", "compressed by gzip: extract it and give the folder or file"},
    Magic{"BZh", "compressed by bzip2: extract it and give the folder or file"},
    Magic{"\xfd"
          "7zXZ",
          "compressed by xz: extract it and give the folder or file"},
    Magic{"\x28\xb5\x2f\xfd", "compressed by zstd: extract it and give the folder or file"},
    Magic{"%PDF", "a PDF document, not a dump"},
};

/// Words that a kind of text holds.
struct Text {
  std::string_view first;
  std::string_view second;  ///< empty: the first alone decides
  std::string_view is;
};

constexpr std::array kTexts = {
    Text{"abs min  abs max  metadata", "",
         "the printed frames of transformers' DebugUnderflowOverflow: ranges without shapes, not tensors. Its last "
         "frame "
         "names the module; to dump tensors, use model_addition_debugger_context(..., use_repr=False)"},
    Text{"->  t: ", "aten::",
         "a trace of torch's DebugMode: calls and shapes without values. To dump tensors, run it under "
         "DebugMode.record_outputs() and torch.save what the calls gave"},
    Text{"iteration=", "value=",
         "a statistics log of nvdlfw-inspect: figures without shapes, not tensors. Enable the feature DumpTensors of "
         "TransformerEngine with tensors and high_precision_tensor: True to dump tensors"},
    Text{"nvdlfw", "",
         "a log of nvdlfw-inspect, not tensors. Enable the feature DumpTensors of TransformerEngine with tensors and "
         "high_precision_tensor: True to dump tensors"},
    Text{
        "FlashInfer API", "",
        "a log of FlashInfer's calls without tensors: set FLASHINFER_LOGLEVEL=10 and FLASHINFER_DUMP_DIR to dump them"},
    Text{"\"lst\"", "\"outputs\"",
         "the saved outputs of Polygraphy: convert them with polygraphy.json.load_json() and numpy.savez"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

/// The beginning of a database that was cut off is no text.
bool is_text(std::string_view head) {
  return !head.empty() && !head.starts_with("SQLite format 3") && std::none_of(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != '\x1b';
  });
}

std::string what_text_is(std::string_view head) {
  const std::string start = lower(head.substr(0, 512));
  if (start.find("<!doctype html") != std::string::npos || start.find("<html") != std::string::npos)
    return "a page of HTML, not a dump: a download that was answered with a page, perhaps";
  if (head.starts_with("version https://git-lfs"))
    return "a pointer of Git LFS, not the file that it stands for: fetch it with git lfs pull";
  for (const Text& text : kTexts) {
    const bool both = head.find(text.first) != std::string_view::npos &&
                      (text.second.empty() || head.find(text.second) != std::string_view::npos);
    if (both) return std::string(text.is);
  }
  return std::string(kSomeText);
}

/// Protocol 2 and later begin with their number.
bool is_pickle(std::string_view head) { return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5; }

}  // namespace

std::optional<std::string> what_text_it_is(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".json" || extension == ".jsonl") return std::nullopt;
  const auto read = read_beginning(path, kLooked);
  if (!read) return std::nullopt;
  const std::string_view head(reinterpret_cast<const char*>(read->data()), read->size());
  return is_text(head) ? std::optional(what_text_is(head)) : std::nullopt;
}

std::optional<std::string> what_it_is(const std::filesystem::path& path) {
  const auto read = read_beginning(path, kLooked);
  if (!read) return std::nullopt;
  const std::string_view head(reinterpret_cast<const char*>(read->data()), read->size());
  if (head.empty()) return "empty";
  for (const Magic& magic : kMagic) {
    if (head.starts_with(magic.bytes)) return std::string(magic.is);
  }
  if (is_pickle(head))
    return "a pickle of Python objects, which nanscope does not run: load it and torch.save() a dictionary of its "
           "tensors";
  if (is_text(head)) return what_text_is(head);
  return std::nullopt;
}

bool may_be_repository(const std::filesystem::path& path) {
  const std::string text = path.string();
  const std::size_t slash = text.find('/');
  const bool plain =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") == std::string::npos;
  const bool two = slash != std::string::npos && slash > 0 && slash + 1 < text.size() &&
                   text.find('/', slash + 1) == std::string::npos && text.front() != '.';
  std::error_code error;
  return plain && two && !std::filesystem::exists(path.parent_path(), error);
}

}  // namespace nanscope
