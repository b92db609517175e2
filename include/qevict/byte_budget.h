// A hard limit on everything that a sequence keeps resident for its KV state.
#pragma once

#include <cstddef>
#include <utility>

#include "qevict/status.h"

namespace qevict {

// Not thread-safe: a sequence belongs to one thread. Must outlive its claims.
class ByteBudget {
 public:
  class Claim;
  explicit ByteBudget(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Error kBudgetExceeded, and then nothing has changed.
  [[nodiscard]] Result<Claim> Reserve(size_t bytes);

  size_t limit_bytes() const { return limit_bytes_; }
  size_t used_bytes() const { return used_bytes_; }  // always <= limit_bytes()
  size_t peak_bytes() const { return peak_bytes_; }

 private:
  size_t limit_bytes_;
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

// Bytes taken from a budget; its destructor gives them back.
class ByteBudget::Claim {
 public:
  Claim() = default;
  Claim(Claim&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Claim& operator=(Claim&& other) noexcept {
    Claim taken(std::move(other));
    std::swap(budget_, taken.budget_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  ~Claim() {
    if (budget_ != nullptr) budget_->used_bytes_ -= bytes_;
  }
  size_t bytes() const { return bytes_; }

 private:
  friend class ByteBudget;
  Claim(ByteBudget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {}
  ByteBudget* budget_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace qevict
