#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace varve {

/// The floating-point unit as programs find it, while this lives: a program may have had it flush denormals, or round
/// in another way, and its threads inherit that. Compilers know nothing of it: what computes is a function that is
/// called meanwhile, and not inlined.
class DefaultArithmetic {
 public:
#if defined(__x86_64__)
  DefaultArithmetic() : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultArithmetic() { _mm_setcsr(before_); }
#else
  DefaultArithmetic() { std::fegetenv(&before_), std::fesetenv(FE_DFL_ENV); }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
#endif
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1f80;  ///< all exceptions masked, to nearest, denormals as they are
  const unsigned before_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace varve
