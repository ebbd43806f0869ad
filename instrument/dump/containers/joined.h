#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instrument/dump/container.h"

namespace nanscope {

/// Tensors that are those of other containers one below the other. Their bytes are made when they are asked for, and
/// nobody keeps them.
class JoinedContainer final : public Container {
 public:
  using Part = std::pair<std::shared_ptr<const Container>, std::size_t>;

  /// False where the parts have not one dtype and, but for the first extent, one shape.
  bool add(std::string name, std::vector<Part> parts);
  Result<TensorBytes> bytes(std::size_t tensor) const override;
  Status check() const override;

 private:
  std::vector<std::vector<Part>> parts_of_;
};

}  // namespace nanscope
