#include "instrument/kv_schemes/kv_scheme.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace nanscope {
namespace {

std::string refusal(std::string_view text, std::int64_t heads = 2, std::int64_t width = 32) {
  const Result<KvScheme> scheme = parse_kv_scheme(text);
  if (!scheme) return scheme.error().message;
  const Status status = check(*scheme, heads, width);
  return status ? "" : status.error().message;
}

TEST(KvScheme, EveryPolicyHasANameAndATextThatReadsBack) {
  std::set<std::string_view> names;
  for (const KvPolicy& policy : kv_policies()) {
    EXPECT_TRUE(names.insert(policy.name).second) << policy.name;
    EXPECT_EQ(find_kv_policy(policy.name), &policy);
    for (const KvScheme& scheme : {policy.k, policy.v}) {
      EXPECT_EQ(parse_kv_scheme(to_text(scheme)).value(), scheme) << policy.name;
      EXPECT_EQ(refusal(to_text(scheme)), "") << policy.name;
    }
  }
  EXPECT_GE(names.size(), 25U);
  EXPECT_EQ(find_kv_policy("none"), nullptr);
}

TEST(KvScheme, TextSaysWhatDiffersFromTheDefaults) {
  EXPECT_EQ(to_text(KvScheme{}), "bf16");
  EXPECT_EQ(to_text(parse_kv_scheme("fp8_e4m3,smallest=0.000001,axis=token_head").value()),
            "e4m3,axis=token_head,smallest=1e-06");
  EXPECT_EQ(to_text(parse_kv_scheme("int4,group=32,axis=channel,lifetime=step").value()), "int4,axis=channel,group=32");
  EXPECT_EQ(to_text(parse_kv_scheme("q8_0,transform=hadamard").value()), "q8_0,transform=hadamard");
}

TEST(KvScheme, WhatNobodyStoresIsRefusedInOneLine) {
  EXPECT_EQ(refusal("int7"), "KV scheme 'int7': 'int7' is no format (bf16, e4m3, int8, int4, mxfp8, q8_0, ...)");
  EXPECT_EQ(refusal(""), "KV scheme '': '' is no format (bf16, e4m3, int8, int4, mxfp8, q8_0, ...)");
  EXPECT_EQ(refusal("int8,axes=token"), "KV scheme 'int8,axes=token': nothing is called 'axes'");
  EXPECT_EQ(
      refusal("int8,axis=row"),
      "KV scheme 'int8,axis=row': 'axis=row' is refused; axis is tensor, token, channel, head, token_head, block");
  EXPECT_EQ(refusal("int8,group=3x"), "KV scheme 'int8,group=3x': 'group=3x' is refused; group is a number");
  EXPECT_EQ(refusal("int8,axis=block"), "KV scheme 'int8,axis=block': axis=block needs group=N channels");
  EXPECT_EQ(
      refusal("int8,axis=token,lifetime=first"),
      "KV scheme 'int8,axis=token,lifetime=first': axis=token makes its scales anew: no lifetime=first beside it");
  EXPECT_EQ(refusal("e4m3,statistic=min_max"),
            "KV scheme 'e4m3,statistic=min_max': statistic=min_max is of integers: int2, int3, int4 or int8");
  EXPECT_EQ(refusal("e2m1"), "KV scheme 'e2m1': e2m1 is kept in a block format only");
  EXPECT_EQ(refusal("nvfp4-4over6"),
            "KV scheme 'nvfp4-4over6': a cache is not kept in nvfp4-4over6: rows are stored one by one, element by "
            "element");
  EXPECT_EQ(refusal("mxfp8,axis=token"),
            "KV scheme 'mxfp8,axis=token': mxfp8 says its scales itself: no axis, group or statistic beside it");
  EXPECT_EQ(refusal("int8,percentile=0"), "KV scheme 'int8,percentile=0': percentile is above 0 and at most 100");
  EXPECT_EQ(refusal("int8,window=filled"), "KV scheme 'int8,window=filled': window=filled needs keep_last=N");
  EXPECT_EQ(refusal("int8,keep_last=-1"),
            "KV scheme 'int8,keep_last=-1': keep_first and keep_last are 0 to 1048576 tokens");
}

TEST(KvScheme, BytesOfATokenAreCodesAndWhatReadsThem) {
  const auto bytes = [](std::string_view text, std::int64_t context = 1000) {
    return bytes_a_token(parse_kv_scheme(text).value(), 2, 64, context);
  };
  EXPECT_EQ(bytes("bf16"), 256);
  EXPECT_EQ(bytes("e4m3,lifetime=first"), 128);
  EXPECT_EQ(bytes("int8,axis=token_head"), 128 + 2 * 4);
  EXPECT_EQ(bytes("int4,axis=token_head,statistic=min_max,zero=integer"), 64 + 2 * 4 + 2 * 0.5);
  EXPECT_EQ(bytes("int2,axis=channel,group=32,statistic=min_max,zero=value,scale_format=f16"), 32 + 2 * (128 / 32) * 2);
  EXPECT_EQ(bytes("q8_0"), 4 * 34);
  EXPECT_EQ(bytes("q4_0"), 4 * 18);
  EXPECT_EQ(bytes("mxfp8"), 128 + 4);
  EXPECT_EQ(bytes("nvfp4"), 64 + 8);
  EXPECT_EQ(bytes("int8,axis=token,keep_last=100"), 0.1 * 256 + 0.9 * (128 + 4));
  EXPECT_EQ(bytes("int8,axis=token,keep_last=100", 50), 256) << "all are in the window";
}

}  // namespace
}  // namespace nanscope
