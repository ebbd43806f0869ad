#pragma once
#include <string>
#include <vector>

#include "instrument/dump/container.h"

namespace nanscope {

/// Tensors of which the statistics are all there is.
class StatisticsOnly final : public Container {
 public:
  void add(const std::string& key, const Dtype* dtype, const std::vector<std::int64_t>& shape) {
    tensors_.push_back({key, dtype, shape, 0, {}});
  }
  Result<TensorBytes> bytes(std::size_t tensor) const override {
    return fail(tensors_.at(tensor).key + ": only its statistics were dumped");
  }
};

}  // namespace nanscope
