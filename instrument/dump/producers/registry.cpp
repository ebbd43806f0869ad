#include "instrument/dump/producers/producer.h"

namespace nanscope {

#define NANSCOPE_PRODUCER(name) std::unique_ptr<Producer> name##_producer();
#include "instrument/dump/producers/producers.def"
#undef NANSCOPE_PRODUCER

std::vector<std::unique_ptr<Producer>> make_producers() {
  std::vector<std::unique_ptr<Producer>> producers;
#define NANSCOPE_PRODUCER(name) producers.push_back(name##_producer());
#include "instrument/dump/producers/producers.def"
#undef NANSCOPE_PRODUCER
  return producers;
}

std::string plain_name(const DumpFile& file, const ContainedTensor& tensor) {
  const std::string folder = file.folder();
  const std::string key = tensor.key.empty() ? file.stem() : tensor.key;
  return folder.empty() ? key : folder + '/' + key;
}

}  // namespace nanscope
