#include "core/text/edit_distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace nanscope {
namespace {

TEST(EditDistance, CountsChangesOfLetters) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("saturday", "sunday"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(EditDistance, EndsWhereItIsTooLarge) {
  const std::vector<std::string> words{
      "", "o_proj", "q_proj", "kv_read", "attn_norm.out", "mlp_norm.out", "aaaaaaaaaaaaaaaa"};
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      for (const std::size_t most : {0U, 1U, 2U, 5U, 12U, 40U}) {
        EXPECT_EQ(edit_distance(a, b, most), std::min(most, edit_distance(a, b))) << a << ' ' << b << ' ' << most;
      }
    }
  }
}

}  // namespace
}  // namespace nanscope
