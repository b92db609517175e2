#include "qevict/byte_budget.h"

#include <algorithm>
#include <string>

namespace qevict {

Result<ByteBudget::Claim> ByteBudget::Reserve(size_t bytes) {
  const size_t free_bytes = limit_bytes_ - used_bytes_;
  if (bytes > free_bytes) {
    return Fail(ErrorCode::kBudgetExceeded, std::to_string(bytes) + " bytes are needed but " +
                                                std::to_string(free_bytes) + " of the budget's " +
                                                std::to_string(limit_bytes_) + " are free");
  }
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return Claim(this, bytes);
}

}  // namespace qevict
