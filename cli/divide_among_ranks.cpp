#include "cli/divide_among_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/facts_files.h"
#include "cli/progress.h"
#include "instrument/facts/facts_file.h"
#include "scenarios/divided_scan.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

/// Pieces of work that a rank is given on average: the last ones are small, and one rank does not wait for another.
constexpr std::int64_t kPiecesPerRank = 16;
constexpr auto kBetweenMessages = std::chrono::microseconds(500);

enum Tag : int { kIdle = 1, kWork = 2, kFacts = 3, kFailed = 4 };

using Clock = std::chrono::steady_clock;

std::string text_of(std::int64_t number) { return std::to_string(number); }

struct Job {
  std::unique_ptr<scenarios::DividedScan> scan;
  std::vector<const scenarios::ScanShare*> shares;  ///< the most expensive first

  static Result<Job> open(const RankArguments& arguments, const Interrupt& interrupt, int ranks) {
    scenarios::OpenRunOptions opening;
    opening.stop = interrupt.token();
    opening.follow_links = arguments.follow_links;
    opening.model = arguments.model;
    auto scan = scenarios::DividedScan::open(arguments.target, opening,
                                             {.parts = kPiecesPerRank * ranks, .recompute = arguments.recompute});
    if (!scan) return tl::unexpected(scan.error());
    Job job{std::move(*scan), {}};
    for (const scenarios::ScanShare& share : job.scan->shares()) {
      if (!share.empty()) job.shares.push_back(&share);
    }
    std::stable_sort(job.shares.begin(), job.shares.end(),
                     [](const auto* a, const auto* b) { return a->cost > b->cost; });
    return job;
  }

  /// Records of the facts of a share.
  Result<std::string> work(std::size_t index, const DumpFacts& known, const Interrupt& interrupt) {
    std::string records;
    const auto worked =
        scan->work(*shares[index], known, [&](const std::string& record) { records += facts_records::framed(record); },
                   interrupt.token(), {});
    if (!worked) return tl::unexpected(worked.error());
    return records;
  }
};

/// What a job left in the file that rank 0 continues. From its first message on, it only appends to the file.
DumpFacts left_by_another_job(const std::string& path) {
  if (path.empty()) return {};
  Result<DumpFacts> left = DumpFacts::read(path, true);
  return left ? std::move(*left) : DumpFacts();
}

/// What ranks other than 0 do, until there is nothing left.
int help(Ranks& ranks, const RankArguments& arguments, const Interrupt& interrupt) {
  auto job = Job::open(arguments, interrupt, ranks.size());
  const FactKey dump = job ? job->scan->dump_key() : FactKey{};
  std::optional<DumpFacts> known;
  Status sent = ranks.send(0, kIdle, fmt::format("{:016x}{:016x}", dump.low, dump.high));
  while (sent) {
    auto message = ranks.look();
    if (!message) break;
    if (!*message) {
      std::this_thread::sleep_for(kBetweenMessages);
      continue;
    }
    const std::int64_t index = std::strtoll((*message)->bytes.c_str(), nullptr, 10);
    if (index < 0) break;
    if (!known) known = left_by_another_job(arguments.facts);
    auto records = job ? job->work(static_cast<std::size_t>(index), *known, interrupt)
                       : Result<std::string>(tl::unexpected(job.error()));
    sent = records ? ranks.send(0, kFacts, *records) : ranks.send(0, kFailed, records.error().message);
  }
  ranks.leave();
  return kClean;
}

/// Rank 0: hands out shares, gathers facts, and works itself on a thread of its own.
class Leader {
 public:
  Leader(Ranks& ranks, Job job, DumpFacts facts, std::optional<FactsFile> file, const Interrupt& interrupt)
      : ranks_(ranks),
        job_(std::move(job)),
        known_(facts),
        facts_(std::move(facts)),
        file_(std::move(file)),
        interrupt_(interrupt) {
    for (std::size_t i = 0; i < job_.shares.size(); ++i) total_ += job_.shares[i]->cost;
  }

  Status run(bool progress) {
    const Clock::time_point start = Clock::now();
    ProgressLine line("MiB of work", progress);
    std::thread own([this] { work_here(); });
    Status status;
    int working = ranks_.size() - 1;
    while (status && (working > 0 || !here_ended())) {
      if (Status taken = take_own(); !taken) status = taken;
      auto message = ranks_.look();
      if (!message) status = tl::unexpected(message.error());
      if (!message || !*message) {
        std::this_thread::sleep_for(kBetweenMessages);
        continue;
      }
      if (Status answered = answer(**message, working); !answered) status = answered;
      line.show(done_ >> 20, total_ >> 20, "");
    }
    own.join();
    if (status) status = take_own();
    line.clear();
    if (progress)
      complain(fmt::format("{} ranks, {:.1f} s: {:.1f} MiB of tensors, {:.1f} KiB of facts sent", ranks_.size(),
                           std::chrono::duration<double>(Clock::now() - start).count(),
                           static_cast<double>(job_.scan->bytes()) / 0x1p20, static_cast<double>(sent_) / 0x1p10));
    if (status && file_)
      file_->add(facts_records::part(1, {static_cast<std::int64_t>(facts_.tensors()), failed_ == 0}));
    if (status && file_ && !file_->status()) return file_->status();
    return status;
  }

  DumpFacts take_facts() { return std::move(facts_); }

 private:
  std::optional<std::size_t> next() {
    const std::lock_guard lock(mutex_);
    if (interrupt_.requested() || next_ == job_.shares.size()) return std::nullopt;
    return next_++;
  }

  void work_here() {
    while (const auto index = next()) {
      auto records = job_.work(*index, known_, interrupt_);
      const std::lock_guard lock(mutex_);
      own_.emplace_back(*index, std::move(records));
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }

  bool here_ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  Status take_own() {
    std::deque<std::pair<std::size_t, Result<std::string>>> taken;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(own_);
    }
    for (auto& [index, records] : taken) {
      if (Status kept = records ? keep(*records) : give_up(0, records.error().message); !kept) return kept;
      done_ += job_.shares[index]->cost;
    }
    return {};
  }

  Status keep(const std::string& records) {
    if (file_) file_->add_framed(records);
    return facts_.take_records(std::as_bytes(std::span(records)));
  }

  /// What a rank could not do is read by the diagnosis, which says what is wrong with it.
  Status give_up(int rank, const std::string& why) {
    if (failed_++ == 0 && !interrupt_.requested())
      complain(fmt::format("rank {} failed, its share is computed by rank 0: {}", rank, why));
    return {};
  }

  Status answer(const Ranks::Message& message, int& working) {
    if (message.tag == kFacts) {
      sent_ += message.bytes.size();
      if (Status kept = keep(message.bytes); !kept) return kept;
    }
    bool useful = true;
    if (message.tag == kFailed) give_up(message.from, message.bytes), useful = false;
    const FactKey dump = job_.scan->dump_key();
    if (message.tag == kIdle && message.bytes != fmt::format("{:016x}{:016x}", dump.low, dump.high)) {
      give_up(message.from, "it sees other files");
      useful = false;
    }
    const auto index = useful ? next() : std::nullopt;
    if (index) done_ += job_.shares[*index]->cost;
    working -= index ? 0 : 1;
    return ranks_.send(message.from, kWork, text_of(index ? static_cast<std::int64_t>(*index) : -1));
  }

  Ranks& ranks_;
  Job job_;
  const DumpFacts known_;  ///< what was there before: the thread reads it
  DumpFacts facts_;
  std::optional<FactsFile> file_;
  const Interrupt& interrupt_;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::deque<std::pair<std::size_t, Result<std::string>>> own_;
  bool ended_ = false;
  int failed_ = 0;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  std::uint64_t sent_ = 0;
};

Result<DumpFacts> lead(Ranks& ranks, const RankArguments& arguments, const Interrupt& interrupt) {
  if (Status taken = scenarios::check_target(arguments.target, scenarios::Takes::dumps); !taken)
    return tl::unexpected(taken.error());
  auto job = Job::open(arguments, interrupt, ranks.size());
  if (!job) return tl::unexpected(job.error());
  const FactsOrigin origin{facts_maker(), job->scan->dump_key(), 1};
  DumpFacts facts(origin);
  std::optional<FactsFile> file;
  if (!arguments.facts.empty()) {
    auto opened = FactsFile::open(arguments.facts, origin, 1, facts);
    if (!opened) return tl::unexpected(opened.error());
    file.emplace(std::move(*opened));
    if (facts.parts().empty()) file->add(facts_records::part(1, {0, false}));
    if (facts.origin() != origin) facts = DumpFacts(origin);
  }
  Leader leader(ranks, std::move(*job), std::move(facts), std::move(file), interrupt);
  if (Status led = leader.run(arguments.progress); !led) return tl::unexpected(led.error());
  return leader.take_facts();
}

}  // namespace

Result<std::optional<DumpFacts>> divide_among_ranks(const RankArguments& arguments, const Interrupt& interrupt,
                                                    std::optional<int>& ended) {
  auto ranks = Ranks::join();
  if (!ranks) return tl::unexpected(ranks.error());
  if (ranks->rank() > 0) {
    ended = help(*ranks, arguments, interrupt);
    return std::nullopt;
  }
  auto facts = lead(*ranks, arguments, interrupt);
  if (!facts) {
    // Ranks that wait are sent home, so that the job ends.
    for (int rank = 1; rank < ranks->size(); ++rank) static_cast<void>(ranks->send(rank, kWork, text_of(-1)));
    return tl::unexpected(facts.error());
  }
  ranks->leave();
  return std::optional(std::move(*facts));
}

}  // namespace nanscope::cli
