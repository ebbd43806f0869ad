#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dump.h"
#include "core/result.h"
#include "instrument/dump/container.h"
#include "instrument/dump/listing.h"

/// Programs that write dumps. Each is one file here and one line in producers.def; docs/producers.md says how to add
/// one. What they write is untrusted, as all files of a dump are.
namespace nanscope {

/// What a producer says of one tensor.
struct Naming {
  /// A path of folders and a key that parse_tensor_name() reads: "step_2/rank_0/model.layers.0.mlp.output". Two
  /// tensors may be given the same one; the later is then shown with its number.
  std::string name;
  std::optional<TensorName> at;       ///< where the name cannot say it
  std::optional<std::int64_t> order;  ///< place in its pass, where the producer wrote it down
  std::optional<Health> stated;       ///< of a tensor without elements: what was measured when it was dumped
  std::string note;                   ///< what to know about it; mostly empty
};

/// What a producer finds out besides.
struct ProducerFindings {
  std::vector<RunNote> notes;
  std::vector<RunNote> unread;  ///< files of its own that are damaged, with the reason in one line
  std::size_t expected = 0;     ///< tensors that its directory of the dump lists
  std::string sparse;           ///< a file that says: what lies between the dumped tensors was not dumped
};

struct ProducerOptions {
  std::optional<std::int64_t> vocabulary;  ///< that nanscope.toml gives
};

class Producer {
 public:
  virtual ~Producer() = default;
  /// As it is shown: "SGLang dumper".
  virtual std::string_view name() const = 0;
  /// Looks for what this producer writes. Called once, before anything else.
  virtual void look(const DumpListing& listing, const ProducerOptions& options, ProducerFindings& findings) = 0;
  /// Whether a file is one of those it found.
  virtual bool claims(const DumpFile& file) const = 0;
  /// Opens a claimed file that is of no kind in containers/; null for all others.
  virtual Result<std::unique_ptr<Container>> open(const DumpFile& /*file*/) { return nullptr; }
  /// Of a tensor in a claimed file.
  virtual Naming name_of(const DumpFile& file, const Container& container, std::size_t tensor) = 0;
  /// Called once, after all tensors have names.
  virtual void finish(ProducerFindings& /*findings*/) {}
};

/// One of each, in the order in which they are asked. What none claims is a plain file of tensors.
std::vector<std::unique_ptr<Producer>> make_producers();

/// A tensor's name in a plain file: its folder and its key, or its file's name where it has no key.
std::string plain_name(const DumpFile& file, const ContainedTensor& tensor);

}  // namespace nanscope
