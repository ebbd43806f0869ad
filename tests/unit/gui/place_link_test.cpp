#include "gui/place_link.h"

#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

TEST(PlaceLink, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(shell_word("/runs/a.nanscope"), "/runs/a.nanscope");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(PlaceLink, OpensTheRunAtThePlace) {
  const Place place = *parse_place("2/0/1/inner_norm.out[7,3]");
  EXPECT_EQ(link_to("/runs/my run.nanscope", place),
            "nanscope gui '/runs/my run.nanscope' --at '2/0/1/inner_norm.out[7,3]'");
  EXPECT_EQ(link_to("/runs/../a.nanscope", {}), "nanscope gui /a.nanscope") << "nothing is selected";
}

}  // namespace
}  // namespace nanscope::gui
