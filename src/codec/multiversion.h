#pragma once

// Compiles a kernel twice, for the baseline machine and for AVX2, and picks one at run time. (GCC's target_clones would
// do it, but needs ifunc, which sanitizers and some C libraries lack.)

#if defined(__x86_64__) && defined(__GNUC__)
#define VARVE_HAS_AVX2_KERNELS 1
#define VARVE_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2")))
#else
#define VARVE_HAS_AVX2_KERNELS 0
#define VARVE_TARGET_AVX2
#endif

/// For the body of a kernel, which must be compiled anew inside each version.
#define VARVE_KERNEL_BODY inline __attribute__((always_inline))

namespace varve::kernels {

inline bool machine_has_avx2() {
#if VARVE_HAS_AVX2_KERNELS
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  return has;
#else
  return false;
#endif
}

}  // namespace varve::kernels
