#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/json_lines.h"
#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/text.h"

/// FlashInfer's log of level 10 (flashinfer/api_logging.py, docs.flashinfer.ai/logging.html): a folder a call,
/// 20260101_120000_000_pid77_rmsnorm_call0001, with metadata.jsonl and inputs and outputs as .pt or .safetensors, and
/// session.jsonl above them, to which each call adds a line before and after it runs. Tensors are called arg_0,
/// kwarg_out, result or result_0; the function's signature tells what arg_0 is. A call in a CUDA graph leaves a
/// folder a replay in graph_flushes/flush_0001.
namespace nanscope {
namespace {

struct Call {
  std::string function;
  std::vector<std::string> parameters;
  std::int64_t order = 0;
  std::int64_t process = 0;
  std::string status;
  std::size_t tensors = 0;  ///< that it says it wrote
};

/// "(input: torch.Tensor, weight, eps: float = 1e-06) -> X" as input, weight, eps.
std::vector<std::string> parameters_of(std::string_view signature) {
  std::vector<std::string> names;
  int depth = 0;
  std::string name;
  bool naming = true;
  for (const char c : signature) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth == 0) break;
    if (depth == 1 && (c == ',' || c == ':' || c == '=')) {
      if (naming && !name.empty()) names.push_back(name);
      name.clear();
      naming = c == ',';
    } else if (naming && c != '(' && c != ' ') {
      name += c;
    }
  }
  if (naming && !name.empty()) names.push_back(name);
  std::erase_if(names, [](const std::string& one) { return one == "*" || one == "/"; });
  return names;
}

std::string word(const JsonView& object, std::string_view key) {
  const auto found = object.find(key);
  return found ? found->text() : std::string();
}

class FlashInfer final : public Producer {
 public:
  std::string_view name() const override { return "FlashInfer level 10"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings& findings) override {
    std::error_code error;
    root_ = std::filesystem::absolute(listing.root, error).lexically_normal().filename().string();
    // A call's own file is read after the session's: of both, the place in the session counts.
    for (const std::string_view name : {"session.jsonl", "metadata.jsonl"}) {
      for (const DumpFile& file : listing.files) {
        if (file.filename() == name) read_lines(file, name == "session.jsonl", findings);
      }
    }
    std::set<std::int64_t> processes;
    for (const auto& [folder, call] : calls_) processes.insert(call.process);
    for (const std::int64_t process : processes) rank_[process] = static_cast<std::int64_t>(rank_.size());
    report(listing, findings);
  }

  bool claims(const DumpFile& file) const override {
    const std::string stem = file.stem();
    return (stem == "inputs" || stem == "outputs") && calls_.contains(last_folder(file.folder()));
  }

  Naming name_of(const DumpFile& file, const Container& container, std::size_t tensor) override {
    const Call& call = calls_.at(last_folder(file.folder()));
    const bool input = file.stem() == "inputs";
    const std::string& key = container.tensors()[tensor].key;
    const std::string parameter = parameter_of(call, key);
    Naming naming;
    naming.name = joined_path(file.folder(), fmt::format("{}.{}", input ? "input" : "output", parameter));
    naming.at = at_of(call, file, parameter, input);
    naming.order = call.order * 2 + (input ? 0 : 1);
    return naming;
  }

 private:
  /// The folder that a call made, which may be the dump's own; a replay's lies below it.
  std::string last_folder(const std::string& folder) const {
    if (folder.empty()) return root_;
    const std::size_t flush = folder.rfind("/graph_flushes/flush_");
    const std::string call = flush == std::string::npos ? folder : folder.substr(0, flush);
    return call.substr(call.rfind('/') + 1);
  }

  void read_lines(const DumpFile& file, bool session, ProducerFindings& findings) {
    const auto data = map_file(file.path);
    const Status read = !data ? Status(tl::unexpected(data.error()))
                              : for_each_json_line(data->bytes, data->name, [&](const JsonLine& line) -> Status {
                                  take(line.object, session ? "" : last_folder(file.folder()));
                                  return {};
                                });
    if (!read) findings.unread.push_back({file.shown, read.error().message});
  }

  void take(const JsonView& object, const std::string& folder_given) {
    std::string folder = folder_given;
    const std::string said = word(object, "dump_dir");
    if (folder.empty() && !said.empty()) folder = last_folder(said);
    if (folder.empty() || word(object, "function_name").empty()) return;
    const auto [found, isnew] = calls_.emplace(folder, Call{});
    Call& call = found->second;
    if (isnew) call.order = static_cast<std::int64_t>(calls_.size());
    call.function = word(object, "function_name");
    call.parameters = parameters_of(word(object, "function_signature"));
    call.status = word(object, "execution_status");
    if (const auto process = object.find("process_id")) call.process = process->natural().value_or(call.process);
    // A method's own object is an argument like others only where it is listed as one.
    const auto inputs = object.find("input_metadata");
    const auto first = inputs ? inputs->find("arg_0") : std::nullopt;
    const bool lists_self = first && first->find("repr");
    if (!lists_self && !call.parameters.empty() && call.parameters.front() == "self") {
      call.parameters.erase(call.parameters.begin());
    }
    call.tensors = 0;
    const auto info = object.find("tensor_info");
    if (!info) return;
    for (const char* key : {"input_tensor_keys", "output_tensor_keys"}) {
      const auto keys = info->find(key);
      if (keys && keys->is_array()) call.tensors += keys->size();
    }
  }

  void report(const DumpListing& listing, ProducerFindings& findings) const {
    std::set<std::string> there;
    for (const DumpFile& file : listing.files) there.insert(last_folder(file.folder()));
    for (const auto& [folder, call] : calls_) {
      if (!there.contains(folder)) {
        findings.notes.push_back({folder, "the session lists this call, and its folder is missing"});
      } else if (call.status == "inputs_saved") {
        findings.notes.push_back({folder, fmt::format("{} did not return: it has inputs alone", call.function)});
      }
      findings.expected += call.tensors;
    }
  }

  static std::string parameter_of(const Call& call, const std::string& key) {
    if (key.starts_with("kwarg_")) return key.substr(6);
    if (!key.starts_with("arg_")) return key;
    const std::string_view rest = std::string_view(key).substr(4);
    const std::size_t nested = rest.find("__");
    const auto number = natural_number(rest.substr(0, nested));
    if (!number || static_cast<std::size_t>(*number) >= call.parameters.size()) return key;
    const std::string& name = call.parameters[static_cast<std::size_t>(*number)];
    return nested == std::string_view::npos ? name : name + std::string(rest.substr(nested));
  }

  /// A call is a module of its own: what its arguments are made of, their bytes tell.
  TensorName at_of(const Call& call, const DumpFile& file, const std::string& parameter, bool input) const {
    TensorName at;
    at.module = last_folder(file.folder());
    at.op = fmt::format("{}.{}", call.function, call.order);
    at.port = input ? Port::input : Port::output;
    at.role = input ? "x" : "out";
    at.known = true;
    at.order = static_cast<int>(std::min<std::int64_t>(call.order, 1'000'000));
    const auto which = std::find(call.parameters.begin(), call.parameters.end(), parameter);
    if (input && which != call.parameters.end()) at.index = static_cast<int>(which - call.parameters.begin());
    if (input && parameter == "weight") {
      at.role = parameter;
      at.port = Port::state;
      at.index = 0;
    }
    if (call.function == "rmsnorm" || call.function == "layernorm") at.kind = OpKind::layer_norm;
    if (rank_.size() > 1) at.rank = rank_.at(call.process);
    const std::size_t flush = file.folder().rfind("flush_");
    if (flush != std::string::npos) at.step = natural_number(std::string_view(file.folder()).substr(flush + 6));
    return at;
  }

  std::string root_;                   ///< the last part of the dump's path
  std::map<std::string, Call> calls_;  ///< by the last part of its folder
  std::map<std::int64_t, std::int64_t> rank_;
};

}  // namespace

std::unique_ptr<Producer> flashinfer_producer() { return std::make_unique<FlashInfer>(); }

}  // namespace nanscope
