#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dtype.h"
#include "core/result.h"
#include "core/tensor/health.h"
#include "instrument/files/json_view.h"
#include "instrument/files/read_budget.h"

/// What msprobe (Ascend, `mindstudio-probe`) says of tensors, in its dump.json and in the databases made of it.
namespace nanscope {

struct MsprobeTensor {
  std::string stored;  ///< the name of its file without the extension, whether it is there or not
  std::string key;     ///< as hooks of PyTorch would call it: "model.layers.0.mlp.down_proj.output.0"
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  Health health;  ///< as far as maximum, minimum, mean and norm tell it; empty without them
  bool has_statistics = false;
  bool function = false;  ///< of a call of a function, not of a module
  std::int64_t order = 0;
};

/// Collects tensors call by call, as modules return: a module's inputs are put before what is inside it. What is kept
/// is charged to what a file of `bytes` may take.
class MsprobeTensors {
 public:
  /// `text` is what the values are views of, for offsets in errors; empty where they are copies.
  MsprobeTensors(std::string file, std::string_view text, std::uint64_t bytes);

  /// Makes room for so many tensors.
  Status expect(std::size_t tensors);
  /// An entry of dump.json: lists of arguments and results.
  Status add_call(const std::string& name, const JsonView& entry);
  /// A node of a graph: objects of tensors by their full names. `folder` is put before the tensors' names.
  Status add_node(const std::string& name, const std::string& folder, const JsonView& inputs, const JsonView& outputs);

  std::vector<MsprobeTensor> take() { return std::move(tensors_); }

 private:
  struct Call {
    std::string name;
    std::string path;  ///< of its module, or the function and which of its calls it is
    bool module = false;
    std::int64_t place = 0;
    std::int64_t begin = 0;  ///< place of what ran first inside it
    bool fits = true;
  };

  tl::unexpected<Error> too_much(const JsonView& at) const;
  Call begin(const std::string& name);
  Status visit(const JsonView& value, std::string_view port, const Call& call, const std::string& index, int depth);
  Status add(const JsonView& value, std::string_view port, const Call& call, const std::string& index);

  std::string file_;
  std::string_view text_;
  ReadBudget budget_;
  std::vector<MsprobeTensor> tensors_;
  std::map<std::string, std::int64_t> first_inside_;  ///< of each module that has not returned yet
  std::string folder_;
  std::int64_t calls_ = 0;
};

/// Health as far as extremes tell it. One that is a NaN says that there is one, an infinite one that there is an Inf:
/// how many is not known.
Health measured_health(std::uint64_t count, double max, double min, std::optional<double> mean,
                       std::optional<double> norm);

/// One statistic: a number, or text or a bare word for what JSON has no number for. Nothing for anything else.
std::optional<double> msprobe_number(std::string_view text);

}  // namespace nanscope
