#!/usr/bin/env python3
"""Measures how near to each threshold the numbers of real targets come.

    tests/trust/threshold_margins.py FOLDER TARGET... [--every] [--depth N] [--jobs N]

FOLDER gets a copy of the sources in which each constant of the first table of docs/thresholds.md reports every number
that it is compared with, and its build. diagnose, and verify where a checkpoint lies next to the dump, run on each TARGET,
as thresholds.py says. Prints a row for each constant: name, file, value, comparisons, the largest number below the
threshold and the smallest above it. Between the two the value may be moved, and no comparison on these targets changes.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import tempfile

import thresholds

HEADER = '''#pragma once
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

namespace watched {

struct Record {
  long long count = 0;
  double below = -INFINITY;
  double above = INFINITY;
};

class Log {
 public:
  static Log& of_process() {
    static Log log;
    return log;
  }
  void add(const char* name, double number, double threshold) {
    if (std::isnan(number)) return;
    const std::lock_guard lock(mutex_);
    Record& record = records_[name];
    ++record.count;
    if (number < threshold && number > record.below) record.below = number;
    if (number >= threshold && number < record.above) record.above = number;
  }
  ~Log() {
    const char* path = std::getenv("NANSCOPE_MARGINS");
    std::FILE* file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    for (const auto& [name, record] : records_)
      std::fprintf(file, "%s\\t%lld\\t%.17g\\t%.17g\\n", name.c_str(), record.count, record.below, record.above);
    std::fclose(file);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Record> records_;
};

/// A threshold times a number: what it is compared with is divided by the number.
struct Scaled {
  const char* name;
  double threshold;
  double by;
  operator double() const { return threshold * by; }
  void compare(double number) const {
    if (by > 0) Log::of_process().add(name, number / by, threshold);
  }
};

template <class T>
struct Watched {
  const char* name;
  T value;
  constexpr operator T() const { return value; }
  void compare(double number) const { Log::of_process().add(name, number, static_cast<double>(value)); }
};

template <class A>
concept Number = std::is_arithmetic_v<A>;

template <class T, Number U>
Scaled operator*(const Watched<T>& a, U b) { return {a.name, static_cast<double>(a.value), static_cast<double>(b)}; }
template <class T, Number U>
Scaled operator*(U b, const Watched<T>& a) { return a * b; }
template <class T, Number U>
Scaled operator/(const Watched<T>& a, U b) { return a * (1 / static_cast<double>(b)); }
template <Number U>
Scaled operator*(const Scaled& a, U b) { return {a.name, a.threshold, a.by * static_cast<double>(b)}; }
template <Number U>
Scaled operator*(U b, const Scaled& a) { return a * b; }

#define WATCHED_COMPARE(op)                                        \\
  template <class T, Number U>                                     \\
  bool operator op(U a, const Watched<T>& b) {                     \\
    b.compare(static_cast<double>(a));                             \\
    return a op static_cast<U>(b.value);                           \\
  }                                                                \\
  template <class T, Number U>                                     \\
  bool operator op(const Watched<T>& a, U b) {                     \\
    a.compare(static_cast<double>(b));                             \\
    return static_cast<U>(a.value) op b;                           \\
  }                                                                \\
  template <Number U>                                              \\
  bool operator op(U a, const Scaled& b) {                         \\
    b.compare(static_cast<double>(a));                             \\
    return static_cast<double>(a) op static_cast<double>(b);       \\
  }                                                                \\
  template <Number U>                                              \\
  bool operator op(const Scaled& a, U b) {                         \\
    a.compare(static_cast<double>(b));                             \\
    return static_cast<double>(a) op static_cast<double>(b);       \\
  }
WATCHED_COMPARE(<)
WATCHED_COMPARE(>)
WATCHED_COMPARE(<=)
WATCHED_COMPARE(>=)

}  // namespace watched

// Warnings print their limits.
template <class T>
struct fmt::formatter<watched::Watched<T>> : fmt::formatter<T> {
  template <class Context>
  auto format(const watched::Watched<T>& a, Context& context) const { return fmt::formatter<T>::format(a.value, context); }
};
template <>
struct fmt::formatter<watched::Scaled> : fmt::formatter<double> {
  template <class Context>
  auto format(const watched::Scaled& a, Context& context) const { return fmt::formatter<double>::format(a, context); }
};
'''
DEFINITION = r"(?P<before>(?:inline |static )*)constexpr (?P<type>double|float|int|std::int64_t|std::size_t) {name} = (?P<value>[^;]+);"


def plain(code, name):
    """A template that takes two numbers of one type takes the plain value."""
    return "\n".join(re.sub(rf"\b{name}\b(?!\.)", f"{name}.value", line) if re.search(r"std::(min|max|clamp)\(", line) else line
                     for line in code.split("\n"))


def rewrite(folder, constants):
    """Returns the constants that are watched now."""
    (folder / "threshold_watch.h").write_text(HEADER)
    made = []
    for file, name, _ in constants:
        path = folder / file
        code = path.read_text()
        pattern = DEFINITION.replace("{name}", name)
        at = re.search(pattern, code)
        if not at:
            continue
        member = path.name == "recompute.h" and "static" in at["before"]
        before = "static inline " if member else "inline " if "inline" in at["before"] else "static "
        text = f'{before}const watched::Watched<{at["type"]}> {name}{{"{file}:{name}", static_cast<{at["type"]}>({at["value"]})}};'
        code = code[:at.start()] + text + plain(code[at.end():], name)
        for reader in (folder / "instrument").rglob("*.cpp") if path.suffix == ".h" else ():
            text = reader.read_text()
            if name in text:
                reader.write_text(plain(text, name))
        if '"threshold_watch.h"' not in code:
            code = code.replace("#include", '#include "threshold_watch.h"\n#include', 1)
        path.write_text(code)
        made.append((file, name))
    return made


def main():
    options = thresholds.parser_of(__doc__).parse_args()
    constants = thresholds.decisive(options.every)

    def watch(sources):
        (options.folder / "watched.json").write_text(json.dumps(rewrite(sources, constants)))

    binary = thresholds.build(thresholds.copy_sources(options.folder, watch))
    targets = thresholds.targets_of(options.targets, options.depth)
    found = collections.defaultdict(lambda: [0, float("-inf"), float("inf")])
    with tempfile.TemporaryDirectory() as logs, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def ask(number, target):
            return list(thresholds.each_answer(binary, target, {**os.environ, "NANSCOPE_MARGINS": f"{logs}/{number}"}))

        list(pool.map(ask, range(len(targets)), targets))
        for log in pathlib.Path(logs).iterdir():
            for line in log.read_text().splitlines():
                name, count, below, above = line.split("\t")
                one = found[name]
                found[name] = [one[0] + int(count), max(one[1], float(below)), min(one[2], float(above))]
    watched = {f"{file}:{name}" for file, name in json.loads((options.folder / "watched.json").read_text())}
    print(f"{len(targets)} targets, {len(constants)} constants, {len(watched)} watched", flush=True)
    for file, name, value in constants:
        key = f"{file}:{name}"
        count, below, above = found[key]
        note = "" if key in watched else "not watched"
        print(f"{name}\t{file}\t{value}\t{count}\t{below:.6g}\t{above:.6g}\t{note}", flush=True)


if __name__ == "__main__":
    main()
