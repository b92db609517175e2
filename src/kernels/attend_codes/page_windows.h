// The windows that the tokens of a page belong to: spreads their biases over scores, and adds
// weights up to their masses. Included by attend_codes_simd.cc only.
#pragma once

#include "kernels/attend_codes/attend_codes.h"
#include "kernels/simd/row_reduction.h"

namespace qevict {
namespace {

// Sums of every 8 of 64 floats.
HWY_INLINE void SumEights(const float* from, float* sums);

struct Masses {
  float* base;
  size_t stride;
};

// A unit is what never lies in two windows: 8 tokens, or one if 8 does not divide omega.
class PageWindows {
 public:
  void Start(const AttendCodesArgs& args) {
    unit_tokens_ = args.omega % 8 == 0 ? 8 : 1;
    window_units_ = args.omega / unit_tokens_;
    bias_of_window_ = args.bias == nullptr ? nullptr : args.bias_of_window;
    window_ = units_taken_ = 0;
  }
  // Moves on to the next page of the call, with the tokens [begin, end).
  void Next(size_t begin, size_t end) {
    begin_ = begin / unit_tokens_;
    end_ = end / unit_tokens_;
    windows_before_ = window_ + (units_taken_ == 0 ? 0 : 1);
    for (size_t u = begin_; u < end_; ++u) {
      window_of_unit_[u] = uint32_t(window_);
      if (bias_of_window_ != nullptr) bias_of_unit_[u] = bias_of_window_[window_];
      if (++units_taken_ == window_units_) {
        units_taken_ = 0;
        ++window_;
      }
    }
  }

  // scores[r, t] = bias of row r and the window of t; only tokens of the page's range.
  void SpreadBiases(const float* bias, size_t stride, size_t rows, float* scores) const {
    for (size_t r = 0; r < rows; ++r) {
      const float* from = bias + r * stride;
      float* to = scores + r * kCodePageTokens;
      if (unit_tokens_ == 1) {
        for (size_t u = begin_; u < end_; ++u) to[u] = from[bias_of_unit_[u]];
        continue;
      }
      const hn::CappedTag<float, 8> d;
      for (size_t u = begin_; u < end_; ++u) {
        const auto eight = hn::Set(d, from[bias_of_unit_[u]]);
        for (size_t i = 0; i < 8; i += hn::Lanes(d)) hn::StoreU(eight, d, to + 8 * u + i);
      }
    }
  }

  // Rescales the masses of earlier pages, then adds the weights p of this page; p is [rows, 64] and
  // 0 outside the range.
  //
  // A mass is kept relative to the largest score so far. New largest scores become rare as a row
  // goes on, so rescaling here is cheaper than remembering every page's.
  void AddMasses(const float* p, const float* rescale, size_t rows, Masses masses) const {
    for (size_t r = 0; r < rows; ++r) {
      float* to = masses.base + r * masses.stride;
      if (rescale[r] != 1.0f) {
        for (size_t w = 0; w < windows_before_; ++w) to[w] *= rescale[r];
      }
      const float* of_unit = p + r * kCodePageTokens;
      HWY_ALIGN float eights[kCodePageTokens / 8];
      if (unit_tokens_ == 8) {
        SumEights(of_unit, eights);
        of_unit = eights;
        if (window_units_ == 1) {
          for (size_t u = begin_; u < end_; ++u)
            to[window_of_unit_[begin_] + u - begin_] = eights[u];
          continue;
        }
      }
      for (size_t u = begin_; u < end_;) {
        const uint32_t window = window_of_unit_[u];
        float sum = to[window];
        for (; u < end_ && window_of_unit_[u] == window; ++u) sum += of_unit[u];
        to[window] = sum;
      }
    }
  }

 private:
  size_t unit_tokens_, window_units_;
  const uint32_t* bias_of_window_;
  size_t window_, units_taken_;  // of the next page's first unit
  size_t windows_before_;        // of which an earlier page had tokens
  size_t begin_, end_;           // units
  uint32_t window_of_unit_[kCodePageTokens], bias_of_unit_[kCodePageTokens];
};

HWY_INLINE void SumEights(const float* from, float* sums) {
#if HWY_MAX_BYTES == 64
  const FloatVec fours = ReduceFours(Plus(), LoadFloats(from), LoadFloats(from + 16),
                                     LoadFloats(from + 32), LoadFloats(from + 48));
  // Of vector v, eight e: in lane v of the blocks 2 e and 2 e + 1.
  const __m512 eights = _mm512_add_ps(fours.raw, _mm512_shuffle_f32x4(fours.raw, fours.raw, 0xb1));
  const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11);
  _mm256_store_ps(sums, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, eights)));
#else
  const hn::CappedTag<float, 4> four;
  for (size_t half = 0; half < 2; ++half) {
    const float* at = from + 32 * half;
#if HWY_MAX_BYTES == 32
    const FloatVec fours = ReduceFours(Plus(), LoadFloats(at), LoadFloats(at + 8),
                                       LoadFloats(at + 16), LoadFloats(at + 24));
    hn::Store(hn::Add(hn::LowerHalf(four, fours), hn::UpperHalf(four, fours)), four,
              sums + 4 * half);
#else
    FloatVec eight[4];
    for (size_t i = 0; i < 4; ++i) {
      eight[i] = hn::Add(LoadFloats(at + 8 * i), LoadFloats(at + 8 * i + 4));
    }
    hn::Store(ReduceFours(Plus(), eight[0], eight[1], eight[2], eight[3]), four, sums + 4 * half);
#endif
  }
#endif
}

}  // namespace
}  // namespace qevict
