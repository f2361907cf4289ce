#include "redundancy/galois_field.h"

#include <algorithm>

namespace varve {

namespace {
constexpr uint32_t kPolynomial = 0x11d;

/// Bit by bit, as the definition says.
constexpr uint8_t slow_product(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; b != 0; b >>= 1) {
    if (b & 1) product ^= a;
    a = (a << 1) ^ (a & 0x80 ? kPolynomial : 0);
  }
  return static_cast<uint8_t>(product);
}

using ProductTable = std::array<std::array<uint8_t, 256>, 256>;

const ProductTable& product_table() {
  static const ProductTable table = [] {
    ProductTable products;
    for (uint32_t a = 0; a < 256; ++a) {
      for (uint32_t b = 0; b < 256; ++b) products[a][b] = slow_product(a, b);
    }
    return products;
  }();
  return table;
}

/// A matrix, and what the same steps make of the identity.
struct MatrixPair {
  std::vector<uint8_t> left, right;
  uint32_t size;

  void swap_rows(uint32_t a, uint32_t b) {
    for (auto* matrix : {&left, &right}) {
      for (uint32_t i = 0; i < size; ++i) std::swap((*matrix)[a * size + i], (*matrix)[b * size + i]);
    }
  }
  void scale_row(uint32_t row, uint8_t factor) {
    for (auto* matrix : {&left, &right}) {
      for (uint32_t i = 0; i < size; ++i) (*matrix)[row * size + i] = galois_product((*matrix)[row * size + i], factor);
    }
  }
  void add_row(uint32_t to, uint32_t from, uint8_t factor) {
    for (auto* matrix : {&left, &right}) {
      for (uint32_t i = 0; i < size; ++i) {
        (*matrix)[to * size + i] ^= galois_product((*matrix)[from * size + i], factor);
      }
    }
  }
};
}  // namespace

uint8_t galois_product(uint8_t a, uint8_t b) { return product_table()[a][b]; }

uint8_t galois_inverse(uint8_t a) {
  const std::array<uint8_t, 256>& products = product_table()[a];
  return static_cast<uint8_t>(std::find(products.begin(), products.end(), 1) - products.begin());
}

const std::array<uint8_t, 256>& galois_products(uint8_t a) { return product_table()[a]; }

// Gauss and Jordan: what makes the matrix the identity makes the identity its inverse.
Result<std::vector<uint8_t>> galois_inverse_matrix(std::span<const uint8_t> matrix, uint32_t size) {
  MatrixPair pair{{matrix.begin(), matrix.end()}, std::vector<uint8_t>(matrix.size()), size};
  for (uint32_t i = 0; i < size; ++i) pair.right[i * size + i] = 1;
  for (uint32_t column = 0; column < size; ++column) {
    uint32_t pivot = column;
    while (pivot < size && pair.left[pivot * size + column] == 0) ++pivot;
    if (pivot == size) return Status::internal("a matrix of an erasure code has no inverse");
    if (pivot != column) pair.swap_rows(column, pivot);
    pair.scale_row(column, galois_inverse(pair.left[column * size + column]));
    for (uint32_t row = 0; row < size; ++row) {
      if (row != column) pair.add_row(row, column, pair.left[row * size + column]);
    }
  }
  return std::move(pair.right);
}

}  // namespace varve
