#include <fmt/format.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "instrument/kv_schemes/scheme_cache.h"
#include "instrument/python/extension/bind.h"
#include "instrument/python/extension/elements.h"
#include "instrument/python/extension/failure.h"

namespace py = pybind11;

namespace nanscope::python {
namespace {

/// A scheme's text, or the name of a policy, which has one for keys and one for values.
KvScheme scheme_named(const std::string& text, bool keys) {
  if (const KvPolicy* policy = find_kv_policy(text)) return keys ? policy->k : policy->v;
  return value_of(parse_kv_scheme(text));
}

/// What attention reads of rows (tokens, kv_heads, head_dim) f32 that a cache stored in one step, and what it counted.
py::tuple quantize_kv(const py::buffer& values, std::int64_t kv_heads, std::int64_t head_dim, const std::string& text,
                      bool keys) {
  const KvScheme scheme = scheme_named(text, keys);
  const ElementBytes bytes = bytes_of(values);
  std::vector<float> rows(bytes.bytes.size() / sizeof(float));
  if (!rows.empty()) std::memcpy(rows.data(), bytes.bytes.data(), rows.size() * sizeof(float));
  SchemeCache cache(scheme, 0, 1, kv_heads, head_dim);
  std::vector<std::byte> read;
  {
    const py::gil_scoped_release released;
    const KvRows step{rows, 0, 0};
    throw_if(cache.store(std::span(&step, 1)));
    const std::vector<float> back = value_of(cache.read(0));
    const auto raw = std::as_bytes(std::span(back));
    read.assign(raw.begin(), raw.end());
  }
  const KvCounts& counts = cache.counts();
  py::dict counted;
  counted["elements"] = counts.elements;
  counted["clipped"] = counts.clipped;
  counted["flushed"] = counts.flushed;
  counted["non_finite"] = counts.non_finite;
  counted["utilization"] = counts.utilization;
  return py::make_tuple(elements_of(std::move(read)), counted, to_text(scheme),
                        bytes_a_token(scheme, kv_heads, head_dim, std::ssize(rows) / (kv_heads * head_dim)));
}

}  // namespace

void bind_kv(py::module_& module) {
  module.def("quantize_kv", &quantize_kv, py::arg("values"), py::arg("kv_heads"), py::arg("head_dim"),
             py::arg("scheme"), py::arg("keys"));
  module.def("kv_policies", [] {
    std::vector<std::string> names;
    for (const KvPolicy& policy : kv_policies()) names.emplace_back(policy.name);
    return names;
  });
}

}  // namespace nanscope::python
