#pragma once

#include <cstddef>
#include <vector>

#include "tests/support/random.h"

namespace qevict::test {

inline std::vector<float> GaussianRow(size_t size, Random& random) {
  std::vector<float> row(size);
  for (float& x : row) x = random.Normal();
  return row;
}

inline double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t c = 0; c < a.size(); ++c) sum += double(a[c]) * b[c];
  return sum;
}

}  // namespace qevict::test
