#pragma once
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/temporary_folder.h"

namespace nanscope::testing {

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

/// The program, running beside the test; killed when it is still there at the end. Its standard error becomes
/// `started.err` in its folder.
class Started {
 public:
  Started(const std::filesystem::path& folder, const std::vector<std::string>& arguments) : id_(::fork()) {
    if (id_ != 0) return;
    std::vector<std::string> words = arguments;
    words.insert(words.begin(), NANSCOPE_BINARY);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1}) ::dup2(nothing, stream);
    ::dup2(::open((folder / "started.err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    if (::chdir(folder.c_str()) == 0) ::execv(NANSCOPE_BINARY, pointers.data());
    std::_Exit(127);
  }
  ~Started() {
    if (id_ <= 0) return;
    send(SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  void send(int signal) const { ::kill(id_, signal); }
  /// Its exit code; -1: a signal ended it.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(id_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// Until the program answers SIGTERM by an orderly end, ten seconds at most: it blocks the signal and waits for it.
  void wait_for_signals() const {
    for (int i = 0; i < 2000; ++i) {
      std::ifstream status("/proc/" + std::to_string(id_) + "/status");
      for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("SigBlk:")) continue;
        if ((std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  /// Until a file that it writes holds something, ten seconds at most.
  static void wait_for(const std::filesystem::path& file) {
    std::error_code error;
    for (int i = 0; i < 2000; ++i) {
      if (std::filesystem::file_size(file, error) > 0 && !error) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  pid_t id_;
};

class Command : public ::testing::Test {
 protected:
  void SetUp() override { write("small.toml", kSmall); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  /// A matrix of f32 as NumPy writes it.
  void write_npy(const std::string& name, std::int64_t rows, std::int64_t columns, const std::vector<float>& values) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                         std::to_string(columns) + "), }";
    header.resize(117, ' ');
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    write(name, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + '\n' + bytes);
  }
  std::string read(const std::string& name) {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  /// Runs `nanscope arguments` in the test's folder.
  Output run(const std::string& arguments) {
    const std::string line = "cd '" + folder_.string() + "' && LC_ALL=C NO_COLOR=1 '" NANSCOPE_BINARY "' " + arguments +
                             " >out.txt 2>err.txt </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }

  /// Exit code 2, nothing on stdout, one line on stderr that holds `part`.
  void expect_refused(const std::string& arguments, const std::string& part) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << '\n' << output.err;
    EXPECT_EQ(output.out, "") << arguments;
    EXPECT_THAT(output.err, ::testing::StartsWith("nanscope")) << arguments;
    EXPECT_THAT(output.err, ::testing::HasSubstr(part)) << arguments;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }

  static constexpr const char* kSmall = R"(name = "small"
title = "Small and clean"
[model]
weights = "random"
layers = 1
width = 32
heads = 1
kv_heads = 1
head_dim = 32
mlp_width = 32
[[request]]
name = "only"
text = "Moons pull tides"
max_tokens = 2
[expect]
verdict = "clean"
requests_nan = []
)";

  /// A run of some seconds.
  static constexpr const char* kLong = R"(name = "long"
[model]
weights = "random"
layers = 8
width = 256
[kv]
blocks = 512
[[request]]
text = "Moons pull tides"
max_tokens = 4000
[expect]
verdict = "clean"
)";

  TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

}  // namespace nanscope::testing
