#include "gui/menu_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nanscope::gui {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;

MenuTarget element() {
  MenuTarget target{{*parse_place("2/0/1/inner_norm.out[7,3]"), {}}};
  target.value = "nan";
  target.bits = "0x7FFFFFFF";
  target.row = "1,2,nan";
  return target;
}

std::vector<std::string> texts(const std::vector<MenuItem>& items, MenuAct act) {
  std::vector<std::string> found;
  for (const MenuItem& item : items) {
    if (item.act == act) found.push_back(item.text);
  }
  return found;
}

TEST(MenuItems, CopyWhatAnElementIsAndTheCommandsThatShowIt) {
  const auto items = menu_items(element(), {"/tmp/my run.nanscope"});
  EXPECT_THAT(texts(items, MenuAct::copy),
              ::testing::ElementsAre("nan", "0x7FFFFFFF", "1,2,nan", "2/0/1/inner_norm.out[7,3]",
                                     "nanscope gui '/tmp/my run.nanscope' --at '2/0/1/inner_norm.out[7,3]'",
                                     "nanscope why '/tmp/my run.nanscope' '2/0/1/inner_norm.out[7,3]'"));
}

TEST(MenuItems, GoOnFromAPlace) {
  const auto items = menu_items(element(), {"/tmp/a.nanscope"});
  EXPECT_THAT(texts(items, MenuAct::show), ::testing::ElementsAre("why", "tensor", "bits"));
  EXPECT_THAT(texts(items, MenuAct::list), ::testing::ElementsAre("layer:1", "inner_norm", "request:2"));
  EXPECT_THAT(items, Contains(Field(&MenuItem::act, MenuAct::zoom_token)));
  EXPECT_THAT(items, Contains(Field(&MenuItem::words, "Pin")));
  EXPECT_THAT(menu_items(element(), {"/tmp/a.nanscope", true, true}),
              ::testing::AllOf(Contains(Field(&MenuItem::words, "Take the pin away")),
                               Contains(Field(&MenuItem::words, "Compare with the run beside"))));
}

TEST(MenuItems, OfAChangeToTry) {
  MenuTarget target;
  target.value = "kv.format=bf16";
  target.settings = {"kv.format=bf16", "a=b c"};
  const auto items = menu_items(target, {"/tmp/a.nanscope"});
  EXPECT_THAT(
      texts(items, MenuAct::copy),
      ::testing::ElementsAre("kv.format=bf16", "nanscope replay /tmp/a.nanscope --set kv.format=bf16 --set 'a=b c'"));
  EXPECT_THAT(items, Not(Contains(Field(&MenuItem::act, MenuAct::pin))));
}

TEST(MenuItems, OfNothingIsEmpty) { EXPECT_THAT(menu_items({}, {"/tmp/a.nanscope", false, false, false}), IsEmpty()); }

TEST(MenuItems, LongTextIsNotInTheLine) {
  MenuTarget target = element();
  target.value = std::string(1000, '1');
  EXPECT_THAT(menu_items(target, {"/tmp/a.nanscope"}), Contains(Field(&MenuItem::words, "Copy the value")));
}

}  // namespace
}  // namespace nanscope::gui
