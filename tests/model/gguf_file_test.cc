#include "model/gguf_file.h"

#include <ggml.h>
#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

// A tiny model with one key of every type that matters.
TinyModelConfig WithKeys() {
  TinyModelConfig config;
  config.edit_metadata = [](gguf_context* m) {
    gguf_set_val_u8(m, "u8", 255);
    gguf_set_val_i16(m, "i16", 300);
    gguf_set_val_i32(m, "negative", -1);
    gguf_set_val_u64(m, "u64", 4294967295u);
    gguf_set_val_u64(m, "too large", 4294967296u);
    gguf_set_val_f64(m, "f64", 0.5);
    gguf_set_val_bool(m, "yes", true);
    gguf_set_val_str(m, "text", "hello");
    const int16_t shorts[] = {1, 2, 3};
    gguf_set_arr_data(m, "shorts", GGUF_TYPE_INT16, shorts, 3);
    const int8_t bools[] = {1, 0};
    gguf_set_arr_data(m, "bools", GGUF_TYPE_BOOL, bools, 2);
    gguf_set_arr_data(m, "nothing", GGUF_TYPE_FLOAT32, nullptr, 0);
  };
  return config;
}

class GgufFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = GgufFile::Open(tiny_.path());
    ASSERT_TRUE(opened) << opened.error().message;
    file_ = std::move(*opened);
  }
  TinyModelFile tiny_{WithKeys()};
  std::unique_ptr<GgufFile> file_;
};

TEST_F(GgufFileTest, IntegersOfAnyWidthConvertWhenTheValueFits) {
  EXPECT_THAT(file_->FindU32("u8").value(), Optional(255u));
  EXPECT_THAT(file_->FindU32("i16").value(), Optional(300u));
  EXPECT_THAT(file_->FindU32("u64").value(), Optional(4294967295u));
  EXPECT_FALSE(file_->FindU32("negative"));
  EXPECT_FALSE(file_->FindU32("too large"));
}

TEST_F(GgufFileTest, AnAbsentKeyIsNoError) {
  EXPECT_EQ(file_->FindU32("absent").value(), std::nullopt);
  EXPECT_EQ(file_->FindF32("absent").value(), std::nullopt);
  EXPECT_EQ(file_->FindBool("absent").value(), std::nullopt);
  EXPECT_EQ(file_->FindString("absent").value(), std::nullopt);
  EXPECT_EQ(file_->FindU32Array("absent").value(), std::nullopt);
  EXPECT_EQ(file_->FindStringArray("absent").value(), std::nullopt);
  EXPECT_EQ(file_->FindArrayLength("absent").value(), std::nullopt);
}

TEST_F(GgufFileTest, AKeyOfAnotherTypeIsAnErrorThatNamesFileAndKey) {
  for (const char* key : {"f64", "yes", "text", "shorts"}) {
    const auto value = file_->FindU32(key);
    ASSERT_FALSE(value) << key;
    EXPECT_EQ(value.error().code, ErrorCode::kBadFile);
    EXPECT_THAT(value.error().message, HasSubstr(key));
    EXPECT_THAT(value.error().message, HasSubstr(tiny_.path()));
  }
  EXPECT_FALSE(file_->FindF32("u8"));
  EXPECT_FALSE(file_->FindBool("u8"));
  EXPECT_FALSE(file_->FindString("shorts"));
  EXPECT_FALSE(file_->FindU32Array("tokenizer.ggml.tokens"));
  EXPECT_FALSE(file_->FindStringArray("shorts"));
  EXPECT_FALSE(file_->FindArrayLength("u8"));
}

TEST_F(GgufFileTest, FloatsTextsAndArraysAreRead) {
  EXPECT_THAT(file_->FindF32("f64").value(), Optional(0.5f));
  EXPECT_THAT(file_->FindBool("yes").value(), Optional(true));
  EXPECT_THAT(file_->FindString("text").value(), Optional(std::string("hello")));
  EXPECT_THAT(file_->FindU32Array("shorts").value(), Optional(ElementsAre(1, 2, 3)));
  EXPECT_THAT(file_->FindU32Array("bools").value(), Optional(ElementsAre(1, 0)));
  EXPECT_THAT(file_->FindU32Array("u8").value(), Optional(ElementsAre(255)));
  EXPECT_THAT(file_->FindArrayLength("nothing").value(), Optional(0u));
  EXPECT_EQ(file_->FindStringArray("tokenizer.ggml.tokens").value()->at('A'), "A");
}

TEST_F(GgufFileTest, TensorsPointIntoTheMappingInFileOrder) {
  const auto tensors = file_->Tensors();
  ASSERT_FALSE(tensors.empty());
  EXPECT_STREQ(tensors[0]->name, "token_embd.weight");
  const uint8_t* end = file_->mapping();
  for (const ggml_tensor* tensor : tensors) {
    EXPECT_EQ(file_->FindTensor(tensor->name), tensor);
    EXPECT_GE(file_->TensorBytes(tensor), end);
    end = file_->TensorBytes(tensor) + ggml_nbytes(tensor);
    EXPECT_LE(end, file_->mapping() + file_->file_bytes());
  }
  EXPECT_EQ(file_->FindTensor("blk.99.attn_q.weight"), nullptr);
}

TEST_F(GgufFileTest, TensorBytesAreTheFilesBytes) {
  const ggml_tensor* norm = file_->FindTensor("output_norm.weight");
  ASSERT_NE(norm, nullptr);
  float first = 0.0f;
  std::memcpy(&first, file_->TensorBytes(norm), sizeof(first));
  EXPECT_NEAR(first, 1.0f,
              0.4f);  // mean 1, deviation 0.1, and the generator ends at 3.5 deviations
}

Error OpenError(const std::string& path) {
  const auto file = GgufFile::Open(path);
  return file ? Error{ErrorCode::kInternal, "opened"} : file.error();
}

TEST(GgufFileOpenTest, SaysWhatIsWrongWithThePath) {
  EXPECT_EQ(OpenError("/no/such/file.gguf").code, ErrorCode::kNotFound);
  EXPECT_THAT(OpenError("/no/such/file.gguf").message, HasSubstr("/no/such/file.gguf"));
  EXPECT_THAT(OpenError("/").message, HasSubstr("directory"));
  EXPECT_THAT(OpenError("/dev/null").message, HasSubstr("not a regular file"));
}

TEST(GgufFileOpenTest, ANamedPipeDoesNotBlock) {
  const std::string path = ::testing::TempDir() + "qevict-gguf-pipe";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(OpenError(path).message, HasSubstr("not a regular file"));
  std::filesystem::remove(path);
}

TEST(GgufFileOpenTest, AnUnreadableFileIsAnIoError) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads every file";
  const TinyModelFile tiny({});
  ASSERT_EQ(chmod(tiny.path().c_str(), 0), 0);
  EXPECT_EQ(OpenError(tiny.path()).code, ErrorCode::kIo);
}

TEST(GgufFileOpenTest, EmptyAndForeignFilesAreRefused) {
  const std::string path = ::testing::TempDir() + "qevict-gguf-foreign";
  std::ofstream(path, std::ios::binary | std::ios::trunc).close();
  EXPECT_THAT(OpenError(path).message, HasSubstr("is empty"));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "#!/bin/sh\necho hello\n";
  EXPECT_THAT(OpenError(path).message, HasSubstr("not a GGUF file"));
  EXPECT_THAT(OpenError(path).message, Not(HasSubstr("\n")));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace qevict::test
