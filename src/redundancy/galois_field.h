#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "varve/status.h"

namespace varve {

// Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), the field of isa-l and of most
// Reed-Solomon codes: a byte is an element, addition is exclusive or. FORMAT.md, "Redundancy files", relies on it.

uint8_t galois_product(uint8_t a, uint8_t b);
/// The element whose product with `a` is 1; `a` is not 0.
uint8_t galois_inverse(uint8_t a);
/// The products of `a` with every byte.
const std::array<uint8_t, 256>& galois_products(uint8_t a);

/// The inverse of a square matrix of `size` rows, row by row; internal if it has none.
Result<std::vector<uint8_t>> galois_inverse_matrix(std::span<const uint8_t> matrix, uint32_t size);

}  // namespace varve
