#include <fmt/format.h>

#include <map>
#include <set>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/producers/msprobe_database.h"
#include "instrument/dump/producers/msprobe_directory.h"
#include "instrument/dump/producers/producer.h"
#include "instrument/dump/producers/statistics_only.h"
#include "instrument/dump/producers/text.h"
#include "instrument/files/file.h"

/// msprobe of Ascend's MindStudio (docs.sglang.io/docs/developer_guide/msprobe_debugging_guide has the layout):
/// step0/rank0/dump.json with names and statistics, stack.json, construct.json, and, where tensors were asked for,
/// dump_tensor_data/Module.NAME.CLASS.forward.0.output.0.pt (.npy from MindSpore). Without them the tensors have no
/// elements: their health is what the statistics say. Graphs that were made of it, *.vis.db, hold the same statistics.
/// Its *.trend.db have other tables and are not read.
namespace nanscope {
namespace {

constexpr std::string_view kDataFolder = "dump_tensor_data";

struct Directory {
  std::vector<MsprobeTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> by_file;  ///< by the name of the tensor's file
  std::vector<std::size_t> without_file;
};

bool is_graph(const DumpFile& file) { return file.shown.ends_with(".vis.db"); }
bool is_database(const DumpFile& file) { return is_graph(file) || file.shown.ends_with(".trend.db"); }

/// The folder of dump.json of a file in dump_tensor_data; of others, its own.
std::string directory_of(const DumpFile& file) {
  std::string folder = file.folder();
  if (folder == kDataFolder) return "";
  if (folder.ends_with(std::string("/") + std::string(kDataFolder))) {
    return folder.substr(0, folder.size() - kDataFolder.size() - 1);
  }
  return folder;
}

/// "step0/rank0/Functional.linear.19.input.1": calls of one function are modules of their own. Their names are words
/// for values of a model too, such as the cosine of any numbers, and are not taken for those.
TensorName at_of_function(const std::string& name, std::string_view key) {
  TensorName at = parse_tensor_name(name);
  const std::vector<std::string_view> parts = split_at(key, ".");
  const auto side = std::find_if(parts.begin(), parts.end(),
                                 [](std::string_view part) { return part == "input" || part == "output"; });
  if (side - parts.begin() < 3) return at;
  const std::string_view index = side + 1 == parts.end() ? std::string_view() : *(side + 1);
  TensorName call;
  call.run = at.run;
  call.step = at.step;
  call.rank = at.rank;
  call.request = at.request;
  call.module = std::string(key.substr(0, static_cast<std::size_t>(side->data() - key.data()) - 1));
  call.op = call.module.substr(call.module.find('.') + 1);
  call.port = *side == "input" ? Port::input : Port::output;
  call.role = call.port == Port::input ? "x" : "out";
  call.index = static_cast<int>(natural_number(index).value_or(0));
  call.known = true;
  if (call.op.starts_with("softmax.") && call.index == 0) {
    call.kind = OpKind::softmax;
    call.role = call.port == Port::input ? "scores" : "probs";
  }
  if (!call.op.starts_with("linear.")) return call;
  call.kind = OpKind::gemm;
  if (call.port == Port::output || call.index == 0 || call.index > 2) return call;
  call.port = Port::state;
  call.role = call.index == 1 ? "weight" : "bias";
  call.index = 0;
  return call;
}

class Msprobe final : public Producer {
 public:
  std::string_view name() const override { return "msprobe"; }

  void look(const DumpListing& listing, const ProducerOptions&, ProducerFindings& findings) override {
    std::set<std::pair<std::string, std::string>> stored;
    for (const DumpFile& file : listing.files) {
      if (directory_of(file) != file.folder()) stored.emplace(directory_of(file), file.stem());
    }
    for (const DumpFile& file : listing.files) {
      if (file.filename() != "dump.json") continue;
      const auto text = map_file(file.path);
      auto read = text ? read_msprobe_directory(as_text(text->bytes), file.path.string())
                       : Result<std::optional<std::vector<MsprobeTensor>>>(tl::unexpected(text.error()));
      if (!read) {
        findings.unread.push_back({file.shown, read.error().message});
        continue;
      }
      if (!*read) continue;
      Directory& directory = directories_[file.folder()];
      directory.tensors = std::move(**read);
      for (std::size_t i = 0; i < directory.tensors.size(); ++i) {
        const std::string& name = directory.tensors[i].stored;
        directory.by_file.emplace(name, i);
        if (stored.contains({file.folder(), name})) {
          ++findings.expected;
          continue;
        }
        // msprobe measures no booleans.
        const MsprobeTensor& tensor = directory.tensors[i];
        if (!tensor.has_statistics && tensor.dtype->kind == DtypeKind::boolean) continue;
        ++findings.expected;
        directory.without_file.push_back(i);
      }
    }
  }

  bool claims(const DumpFile& file) const override {
    if (is_database(file)) return true;
    const auto directory = directories_.find(directory_of(file));
    if (directory == directories_.end()) return false;
    return file.filename() == "dump.json" || directory->second.by_file.contains(file.stem());
  }

  Result<std::unique_ptr<Container>> open(const DumpFile& file) override {
    if (is_graph(file)) return open_graph(file);
    if (is_database(file)) {
      return fail(
          file.path.string() +
          ": a database of msprobe's trends, which is not read: expected the folder of dump.json that it was made of");
    }
    if (file.filename() != "dump.json") return nullptr;
    return open_directory(directories_.at(file.folder()), file);
  }

  Naming name_of(const DumpFile& file, const Container&, std::size_t tensor) override {
    const Directory& directory = is_graph(file) ? graphs_.at(file.shown) : directories_.at(directory_of(file));
    const bool stated = is_graph(file) || file.filename() == "dump.json";
    const MsprobeTensor& found =
        directory.tensors[stated ? directory.without_file[tensor] : directory.by_file.find(file.stem())->second];
    Naming naming;
    naming.name = joined_path(directory_of(file), found.key);
    naming.order = found.order;
    if (found.function) naming.at = at_of_function(naming.name, found.key);
    if (stated) naming.stated = found.health;
    return naming;
  }

  void finish(ProducerFindings& findings) override {
    if (stated_ > 0) {
      findings.notes.push_back(
          {"",
           fmt::format("{} tensors were dumped as statistics alone: that there is a NaN or an Inf in them is known, "
                       "where and how many is not",
                       stated_)});
    }
    if (!lost_.empty()) {
      findings.notes.push_back(
          {lost_.front(),
           fmt::format("is listed, and neither its file nor its statistics are there, one of {}", lost_.size())});
    }
    for (const auto& [file, text] : graph_notes_) findings.notes.push_back({file, text});
  }

 private:
  /// The tensors of which statistics are all there is.
  std::unique_ptr<Container> open_directory(Directory& directory, const DumpFile& file) {
    auto container = std::make_unique<StatisticsOnly>();
    std::vector<std::size_t> listed;
    for (const std::size_t i : directory.without_file) {
      if (!directory.tensors[i].has_statistics) {
        lost_.push_back(joined_path(file.folder(), directory.tensors[i].key));
        continue;
      }
      container->add(directory.tensors[i].key, directory.tensors[i].dtype, directory.tensors[i].shape);
      listed.push_back(i);
    }
    directory.without_file = std::move(listed);
    stated_ += directory.without_file.size();
    return container;
  }

  Result<std::unique_ptr<Container>> open_graph(const DumpFile& file) {
    if (!directories_.empty()) {
      graph_notes_.emplace_back(file.shown, "a graph of the dump.json that is here too: not read a second time");
      return std::make_unique<StatisticsOnly>();
    }
    auto database = read_msprobe_database(file.path);
    if (!database) return tl::unexpected(database.error());
    if (database->bench_nodes > 0) {
      graph_notes_.emplace_back(file.shown, fmt::format("{} of its {} nodes are of the run that it was compared with, "
                                                        "and are not read",
                                                        database->bench_nodes, database->nodes));
    }
    Directory& graph = graphs_[file.shown];
    graph.tensors = std::move(database->tensors);
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) graph.without_file.push_back(i);
    return open_directory(graph, file);
  }

  std::map<std::string, Directory> directories_;  ///< by the folder of dump.json
  std::map<std::string, Directory> graphs_;       ///< by the file's name
  std::vector<std::pair<std::string, std::string>> graph_notes_;
  std::vector<std::string> lost_;
  std::size_t stated_ = 0;
};

}  // namespace

std::unique_ptr<Producer> msprobe_producer() { return std::make_unique<Msprobe>(); }

}  // namespace nanscope
