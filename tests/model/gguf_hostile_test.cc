// Files that are cut, mutated or hostile: every one ends in an error with one sentence or in a
// model that is whole, never in a crash, an abort or an exhausted memory. Run under the sanitizers
// too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "model/gguf_file.h"
#include "model/gguf_scan.h"
#include "support/random.h"
#include "support/read_model.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

constexpr uint32_t kString = 8, kArray = 9;  // GGUF value types

// The places in a valid file where a field begins, found by a walk that shares no code with the
// scanner under test.
struct Fields {
  std::vector<size_t> boundaries;  // of everything: fields, strings, values
  std::vector<size_t> lengths;     // 8-byte counts and lengths
  std::vector<size_t> types;       // 4-byte types and dimension counts
  size_t header_end = 0;
};

class FieldWalker {
 public:
  explicit FieldWalker(const Bytes& file) : file_(file) {}

  Fields Walk() {
    Number<uint32_t>();  // magic
    Number<uint32_t>();  // version
    const uint64_t tensors = Length(), keys = Length();
    for (uint64_t i = 0; i < keys; ++i) {
      String();
      Value(Type());
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      String();
      const uint32_t dims = Type();
      for (uint32_t d = 0; d < dims; ++d) Length();
      Type();
      Length();  // offset
    }
    fields_.header_end = at_;
    return fields_;
  }

 private:
  template <typename T>
  T Number() {
    fields_.boundaries.push_back(at_);
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  uint64_t Length() {
    fields_.lengths.push_back(at_);
    return Number<uint64_t>();
  }
  uint32_t Type() {
    fields_.types.push_back(at_);
    return Number<uint32_t>();
  }
  void String() {
    const uint64_t bytes = Length();
    at_ += bytes;
  }
  void Value(uint32_t type) {
    static constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kString) return String();
    if (type != kArray) {
      fields_.boundaries.push_back(at_);
      at_ += kBytes[type];
      return;
    }
    const uint32_t element = Type();
    const uint64_t count = Length();
    for (uint64_t i = 0; i < count; ++i)
      element == kString ? String() : void(at_ += kBytes[element]);
  }

  const Bytes& file_;
  size_t at_ = 0;
  Fields fields_;
};

TinyModelConfig Smallest() {
  TinyModelConfig config;
  config.layers = 1;
  config.kv_heads = 1;
  config.embedding = 32;
  config.head_dim = 16;
  config.feed_forward = 32;
  config.vocab = 288;
  return config;
}

Bytes FileBytes(const TinyModelConfig& config) {
  const TinyModelFile tiny(config);
  std::ifstream in(tiny.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class GgufHostileTest : public ::testing::Test {
 protected:
  Status Read(std::span<const uint8_t> bytes) {
    scratch_.Write(bytes);
    return ReadModel(scratch_.path());
  }
  void ExpectOneSentence(const Status& status) {
    if (status.ok()) return;
    EXPECT_FALSE(status.error().message.empty());
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().code, ErrorCode::kInternal) << status.error().message;
  }
  const Bytes valid_ = FileBytes(Smallest());
  const Fields fields_ = FieldWalker(valid_).Walk();
  ScratchFile scratch_;
};

TEST_F(GgufHostileTest, TheFileThatIsMutatedIsValid) {
  const Status status = Read(valid_);
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_GT(fields_.lengths.size(), 300u);
  EXPECT_LT(fields_.header_end, valid_.size());
}

TEST_F(GgufHostileTest, AFileCutAtAnyFieldIsRefused) {
  for (size_t boundary : fields_.boundaries) {
    for (size_t size : {boundary, boundary + 1}) {
      const Status status = Read(std::span(valid_).first(size));
      ASSERT_FALSE(status) << size;
      EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
    }
  }
}

TEST_F(GgufHostileTest, AFileCutInItsTensorsNamesTheTensorAndBothSizes) {
  for (size_t size = fields_.header_end; size < valid_.size(); size += 97) {
    const Status status = Read(std::span(valid_).first(size));
    ASSERT_FALSE(status) << size;
    EXPECT_THAT(status.error().message, HasSubstr("is truncated: tensor '"));
    EXPECT_THAT(status.error().message,
                HasSubstr("the file has " + std::to_string(size) + " bytes"));
  }
  EXPECT_FALSE(Read(std::span(valid_).first(valid_.size() - 32)));
}

TEST_F(GgufHostileTest, EveryLengthFieldSetToAHugeValueIsRefused) {
  for (uint64_t value : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{1} << 20}) {
    for (size_t at : fields_.lengths) {
      Bytes bytes = valid_;
      std::memcpy(bytes.data() + at, &value, sizeof(value));
      ASSERT_FALSE(Read(bytes)) << "length at " << at << " = " << value;
    }
  }
}

TEST_F(GgufHostileTest, EveryTypeFieldSetToAnythingElseEndsWell) {
  for (uint32_t value : {0u, 4u, 6u, kString, kArray, 12u, 13u, 39u, 200u, ~0u}) {
    for (size_t at : fields_.types) {
      Bytes bytes = valid_;
      std::memcpy(bytes.data() + at, &value, sizeof(value));
      ExpectOneSentence(Read(bytes));
    }
  }
}

TEST_F(GgufHostileTest, AThousandMutatedHeadersEndWell) {
  constexpr uint64_t kInteresting[] = {
      0, 1, 0x7f, 0xff, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, ~uint64_t{0}};
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Bytes bytes = valid_;
    for (uint64_t edit = 0; edit <= random.Below(4); ++edit) {
      const size_t at = random.Below(fields_.header_end);
      switch (random.Below(4)) {
        case 0:
          bytes[at] ^= uint8_t(1u << random.Below(8));
          break;
        case 1:
          bytes[at] = uint8_t(random.Next());
          break;
        case 2:
          std::memcpy(bytes.data() + fields_.lengths[random.Below(fields_.lengths.size())],
                      &kInteresting[random.Below(std::size(kInteresting))], 8);
          break;
        default:
          std::memcpy(bytes.data() + fields_.boundaries[random.Below(fields_.boundaries.size())],
                      &kInteresting[random.Below(std::size(kInteresting))], 4);
      }
    }
    const Status status = Read(bytes);
    ExpectOneSentence(status);
    refused += !status.ok();
  }
  EXPECT_GT(refused,
            500u);  // most hit text of the vocabulary, which may be anything as long as it differs
}

TEST_F(GgufHostileTest, VersionsAndByteOrdersThatAreNotReadAreNamed) {
  const auto with_version = [&](uint32_t version) {
    Bytes bytes = valid_;
    std::memcpy(bytes.data() + 4, &version, sizeof(version));
    return Read(bytes);
  };
  EXPECT_EQ(with_version(1).error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(with_version(0x03000000).error().message, HasSubstr("big-endian"));
  EXPECT_THAT(with_version(99).error().message, HasSubstr("version 99"));
  EXPECT_TRUE(with_version(2));
}

TEST(GgufScanTest, MoreThanTheLimitsAllowIsRefused) {
  const Bytes bytes = FileBytes(Smallest());
  EXPECT_TRUE(ScanGguf(bytes, "x"));
  EXPECT_THAT(ScanGguf(bytes, "x", {.max_keys = 3}).error().message, HasSubstr("metadata keys"));
  EXPECT_THAT(ScanGguf(bytes, "x", {.max_tensors = 3}).error().message, HasSubstr("tensors"));
  EXPECT_THAT(ScanGguf(bytes, "x", {.max_strings = 100}).error().message, HasSubstr("strings"));
  EXPECT_THAT(ScanGguf(bytes, "x", {.max_header_bytes = 1000}).error().message,
              HasSubstr("larger than 1000 bytes"));
}

TEST(GgufScanTest, WhatATerminalCouldInterpretIsNotPrinted) {
  EXPECT_EQ(Printable("a\x1b[31mb\n\xff"), "a?[31mb??");
  EXPECT_EQ(Printable(std::string(100, 'x')).size(), 64u);
}

}  // namespace
}  // namespace qevict::test
