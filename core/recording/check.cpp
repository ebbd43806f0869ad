#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "core/recording/reader_impl.h"
#include "core/recording/schema.h"

namespace nanscope {

Status Recording::check() const {
  auto loan = impl_->prepare("PRAGMA quick_check(1)");
  if (!loan) return tl::unexpected(std::move(loan.error()));
  {
    sqlite::Statement& statement = **loan.value();
    auto row = statement.step();
    if (!row) return impl_->error(row.error().message);
    const std::string verdict = *row ? statement.text(0) : "no answer";
    if (verdict != "ok") return impl_->error("damaged: " + verdict.substr(0, verdict.find('\n')));
  }
  auto counts = this->counts();
  if (!counts) return tl::unexpected(std::move(counts.error()));
  const char* const tensors = impl_->version == 1 ? "tensors" : "tensors WHERE known";
  const std::pair<const char*, std::int64_t> expected[] = {
      {"requests", counts->requests}, {"steps", counts->steps}, {"ops", counts->ops}, {tensors, counts->tensors}};
  for (const auto& [table, rows] : expected) {
    auto found = sqlite::query_integer(impl_->db.get(), fmt::format("SELECT count(*) FROM {}", table));
    if (!found) return impl_->error(found.error().message);
    if (*found != rows) return impl_->error(fmt::format("damaged: {} of {} {} are there", *found, rows, table));
  }
  const std::pair<const char*, const char*> orphans[] = {
      {"an op without its step", "SELECT count(*) FROM ops WHERE step <> 0 AND step NOT IN (SELECT id FROM steps)"},
      {"a tensor without its op", "SELECT count(*) FROM tensors WHERE op NOT IN (SELECT id FROM ops)"},
      {"a tensor whose bad count is not the sum of its parts",
       "SELECT count(*) FROM tensors WHERE bad <> nan + pos_inf + neg_inf"},
  };
  std::vector<std::pair<const char*, const char*>> all(std::begin(orphans), std::end(orphans));
  if (impl_->version > 1) {
    all.emplace_back("a sequence without its step",
                     "SELECT count(*) FROM spans WHERE step NOT IN (SELECT id FROM steps)");
  }
  for (const auto& [what, sql] : all) {
    auto found = sqlite::query_integer(impl_->db.get(), sql);
    if (!found) return impl_->error(found.error().message);
    if (*found != 0) return impl_->error(fmt::format("damaged: it holds {}", what));
  }
  return {};
}

}  // namespace nanscope
