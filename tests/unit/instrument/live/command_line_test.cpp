#include "instrument/live/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nanscope::live {
namespace {

using Arguments = std::vector<std::string>;

TEST(CommandLine, WhatIsNoSecretStays) {
  EXPECT_EQ(masked_command(Arguments{"python", "serve.py", "--max-tokens", "512", "--tokenizer=llama", "--port", "8000",
                                     "http://localhost:8000/v1", "-c", "x = 1"}),
            "python serve.py --max-tokens 512 --tokenizer=llama --port 8000 http://localhost:8000/v1 -c x = 1");
  EXPECT_EQ(masked_command({}), "");
}

TEST(CommandLine, WhatIsCalledASecretIsMasked) {
  EXPECT_EQ(masked_command(Arguments{"serve", "--api-key", "abc", "--model", "m"}), "serve --api-key *** --model m");
  EXPECT_EQ(masked_command(Arguments{"serve", "--hf-token=abc", "--API_KEY=d=e"}),
            "serve --hf-token=*** --API_KEY=***");
  EXPECT_EQ(masked_command(Arguments{"env", "DB_PASSWORD=abc", "MY_SECRET_ID=d", "A=b", "serve"}),
            "env DB_PASSWORD=*** MY_SECRET_ID=*** A=b serve");
  EXPECT_EQ(masked_command(Arguments{"docker", "--env=AWS_SECRET_ACCESS_KEY=abc"}),
            "docker --env=AWS_SECRET_ACCESS_KEY=***");
  EXPECT_EQ(masked_command(Arguments{"curl", "-H", "Authorization: Bearer abc"}), "curl -H Authorization:***");
  EXPECT_EQ(masked_command(Arguments{"serve", "--token", "-abc"}), "serve --token ***");
  EXPECT_EQ(masked_command(Arguments{"serve", "--use-token", "--verbose"}), "serve --use-token --verbose");
}

TEST(CommandLine, KeysAreKnownByTheirLookAndPasswordsByTheirPlace) {
  EXPECT_EQ(masked_command(Arguments{"serve", "hf_abcdefghijklmnopq", "--key=sk-abcdefghijklmnopq"}),
            "serve *** --key=***");
  EXPECT_EQ(masked_command(Arguments{"serve", "https://me:abc@host/path", "--db=postgres://me:abc@host"}),
            "serve https://me:***@host/path --db=postgres://me:***@host");
}

}  // namespace
}  // namespace nanscope::live
