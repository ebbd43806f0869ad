#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dump.h"
#include "instrument/dump/container.h"
#include "instrument/dump/containers/memory.h"
#include "instrument/dump/listing.h"
#include "instrument/dump/overrides.h"
#include "instrument/dump/plain_files.h"
#include "instrument/dump/producers/producer.h"
#include "instrument/dump/recently_read.h"
#include "instrument/dump/tensor_facts.h"
#include "kernels/device.h"

namespace nanscope {

struct OpenDumpOptions {
  int threads = 0;  ///< 0: one a core
  /// Bytes scanned so far and in all: one call at a time, from any thread.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};
  /// False: activations' health has no sums (NaN), which halves the time of the scan; weights' has them always.
  bool sums = true;
  /// Files that links in the dump lead to are read out of it too.
  bool follow_links = false;
  bool scan = true;  ///< false: tensors have no health; scan_some() gives it to those that it is asked for
  /// Facts that spare the scan of their tensors; must outlive opening. Null: there are none.
  const TensorFacts* known = nullptr;
  bool known_only = false;  ///< tensors without facts are not looked at: see OpenDump::not_looked_at()
  /// Files to be read, where they were listed before; none of them may hold tensors if the listing is partial.
  std::optional<DumpListing> listing = {};
  /// A checkpoint's folder, whose weights take the place of those that the dump holds: see OpenDump::replaced().
  std::filesystem::path checkpoint = {};
  /// Weights that stand for the checkpoint's of the same names, which stay beside them.
  std::vector<NamedTensor> merged = {};
};

/// A weight that was dumped where the checkpoint has one of its own, which stands for it.
struct ReplacedWeight {
  DumpTensor dumped;
  DumpTensor own;
};

/// A file or folder of tensors, or what somebody holds in memory, found, named, put in order and scanned. Elements are
/// read when they are asked for.
class OpenDump final : public DumpElements {
 public:
  /// Errors: nothing there that holds tensors, nothing but files that are damaged or hostile, a wrong nanscope.toml,
  /// stopped.
  static Result<std::unique_ptr<OpenDump>> open(const std::filesystem::path& path, const OpenDumpOptions& options = {});
  /// Tensors in memory as one file of them would be; `target` is how reports call them. Errors: those of
  /// memory_container(), no tensors, stopped.
  static Result<std::unique_ptr<OpenDump>> of(std::string target, std::vector<NamedTensor> tensors,
                                              const OpenDumpOptions& options = {});

  const Dump& dump() const { return dump_; }
  /// Files and tensors that are damaged, hostile or not to be opened, where others were read: the diagnosis is of
  /// those. Each is among the notes of the dump too, and is to be said aloud.
  std::span<const RunNote> unread() const { return unread_; }
  /// Names of tensors that OpenDumpOptions::known_only left out.
  std::span<const std::string> not_looked_at() const { return not_looked_at_; }
  /// The files that tensors were found in.
  std::span<const DumpFileState> files() const { return files_; }
  /// The file of a tensor, an index of files(); nothing for tensors in memory and those that are made of others.
  std::optional<std::size_t> file_of(const DumpTensor& tensor) const { return sources_[tensor.source].stored.file; }
  /// Whether the scan reads it: the producer stated no health, and it is no weight of OpenDumpOptions::checkpoint.
  bool is_scanned(const DumpTensor& tensor) const;
  /// Names a tensor's bytes and how they are read; nothing where file_of() is nothing.
  std::optional<FactKey> identity_of(const DumpTensor& tensor) const;
  /// Names what a scan with these options gives.
  std::optional<FactKey> fact_key(const DumpTensor& tensor, bool sums) const;
  /// Scans tensors, by their indices in dump().tensors, and hands on what each gave. Errors: those of scan_tensors(); a
  /// file was written to.
  Status scan_some(std::span<const std::size_t> tensors, const OpenDumpOptions& options,
                   const std::function<void(std::size_t tensor, const TensorFact& fact)>& found);
  /// Weights of the dump itself, with those of OpenDumpOptions::checkpoint that are used instead. All are of this dump:
  /// bytes() gives them.
  std::span<const ReplacedWeight> replaced() const { return replaced_; }
  /// To be asked when what was read is to be believed. Error: a file was written to, cut off or replaced since it was
  /// opened; what was read then may be neither the old nor the new.
  Status check() const;

  Result<ElementBytes> bytes(const DumpTensor& tensor) override;
  Result<std::vector<Health>> row_health(const DumpTensor& tensor) override;

 private:
  struct Source {
    std::shared_ptr<Container> container;
    std::size_t tensor = 0;
    std::optional<std::int64_t> order;  ///< in its pass, where a producer recorded it
    std::optional<Health> stated;       ///< of a tensor without elements
    StoredAt stored = {};
  };

  OpenDump() = default;
  Status find_files(Result<DumpListing> listing, bool follow_links);
  /// False where the file is of no kind that holds tensors.
  Result<bool> open_file(const DumpFile& file, Producer* producer);
  Status open_members(const DumpFile& file);
  Status check_parts(const Container& container) const;
  void add_tensors(const std::shared_ptr<Container>& container, const DumpFile& file, Producer* producer,
                   StoredAt stored = {});
  /// `stem` is what the file's name says, `stored` of which sort the file is.
  void add_tensor(const std::shared_ptr<Container>& container, std::size_t index, const DumpFile& file,
                  const TensorName& stem, Naming naming, StoredAt stored);
  /// What is left to do when all tensors are known.
  static Result<std::unique_ptr<OpenDump>> finished(std::unique_ptr<OpenDump> dump, const OpenDumpOptions& options);
  /// Weights of a checkpoint, under names of a folder beside the passes.
  Status add_checkpoint(const std::filesystem::path& folder, std::vector<NamedTensor> merged);
  void add_tied_head();
  void join_projections();
  void join_input_scales(const std::set<std::string>& joined, std::set<std::size_t>& gone);
  std::optional<DumpTensor> one_of_all(const std::vector<DumpTensor>& parts) const;
  void replace_weights();
  /// Of a dump that holds too few tensors to recompute ops with its weights.
  void leave_out_weights();
  bool of_checkpoint(const DumpTensor& tensor) const;
  void leave_out(const DumpFile& file, std::vector<std::string>& others);
  void finish_producers();
  void take_files();
  StoredAt stored_at(const DumpTensor& tensor) const { return sources_[tensor.source].stored; }
  void tell_same_names_apart();
  Status override_names();
  Status sort();
  Status scan(const OpenDumpOptions& options);
  std::optional<std::size_t> add_file(const DumpFile& file, const Container& container);
  Status make_device(int threads);
  Status refuse_when_empty() const;

  Dump dump_;
  std::vector<Source> sources_;
  std::vector<RunNote> unread_;
  std::vector<DumpFileState> files_;
  std::vector<std::string> not_looked_at_;
  std::vector<RunNote> no_tensors_;  ///< files that are known to be something else
  std::vector<std::unique_ptr<Producer>> producers_;
  ProducerFindings findings_;
  std::optional<Overrides> overrides_;
  std::vector<std::string> writers_;  ///< names of the producers that claimed a file
  std::unique_ptr<kernels::Device> device_;
  std::filesystem::path root_;
  std::optional<std::size_t> first_of_checkpoint_;  ///< of the sources
  std::vector<ReplacedWeight> replaced_;
  bool follow_links_ = false;
  bool one_file_ = false;  ///< there is no other to tell an archive's members apart from
  bool partial_ = false;   ///< of a dump that has more files
  RecentlyRead recent_;
};

}  // namespace nanscope
