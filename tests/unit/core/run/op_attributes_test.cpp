#include "core/run/op_attributes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nanscope {
namespace {

/// Every kind of op of the table.
std::vector<OpKind> kinds() {
  return {
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) OpKind::enumerator,
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  };
}

TEST(OpKind, WordsAreReadAsTheyAreWritten) {
  for (const OpKind kind : kinds()) EXPECT_EQ(op_kind(name(kind)), kind) << name(kind);
  EXPECT_FALSE(op_kind("no such kernel"));
}

TEST(OpAttributes, NothingStatedIsAnEmptyObject) {
  for (const OpKind kind : kinds()) {
    EXPECT_EQ(to_json(attributes_of(kind)), "{}") << name(kind);
    EXPECT_EQ(attributes_from_json(kind, "{}").index(), attributes_of(kind).index()) << name(kind);
  }
}

TEST(OpAttributes, WhatIsStatedComesBack) {
  NormAttributes norm;
  norm.norm = "layer";
  norm.eps = 1e-5;
  norm.clamp = false;
  norm.groups = 4;
  const std::string json = to_json(norm);
  EXPECT_EQ(json, R"({"norm":"layer","clamp":false,"eps":1e-05,"groups":4})");
  const OpAttributes read = attributes_from_json(OpKind::layer_norm, json);
  const auto* found = std::get_if<NormAttributes>(&read);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->norm, "layer");
  EXPECT_EQ(found->eps, 1e-5);
  EXPECT_EQ(found->clamp, false);
  EXPECT_EQ(found->groups, 4);
  EXPECT_FALSE(found->variance);
}

TEST(OpAttributes, NumbersThatJsonHasNot) {
  KvStoreAttributes store;
  store.scale_k = std::nan("");
  store.scale_v = -INFINITY;
  const OpAttributes read = attributes_from_json(OpKind::kv_store, to_json(store));
  const auto* found = std::get_if<KvStoreAttributes>(&read);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(std::isnan(found->scale_k.value_or(0)));
  EXPECT_EQ(found->scale_v, -INFINITY);
}

TEST(OpAttributes, TextsAndListsAreQuotedAndBounded) {
  KvReadAttributes read;
  read.tail = "a \"quoted\" \\ line\n";
  read.blocks = std::vector<std::int64_t>{3, -1, 7};
  const OpAttributes back = attributes_from_json(OpKind::kv_read, to_json(read));
  const auto* found = std::get_if<KvReadAttributes>(&back);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->tail, read.tail);
  EXPECT_EQ(found->blocks, read.blocks);
}

/// A recording is untrusted: what is of another type, or no object, is not stated.
TEST(OpAttributes, WhatIsNotOfItsTypeIsLeftOut) {
  for (const char* json : {"", "[", "null", "[]", "7", R"({"eps":"small","groups":1.5,"norm":3,"clamp":"yes"})"}) {
    const OpAttributes read = attributes_from_json(OpKind::layer_norm, json);
    const auto* found = std::get_if<NormAttributes>(&read);
    ASSERT_NE(found, nullptr) << json;
    EXPECT_FALSE(found->eps || found->groups || found->norm || found->clamp) << json;
  }
}

}  // namespace
}  // namespace nanscope
