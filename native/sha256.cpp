#include "sha256.hpp"

#include <bit>
#include <cassert>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvext {
namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// FIPS 180-4: first 32 bits of the fractional parts of the cube roots of the first 64 primes.
alignas(16) constexpr u32 kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr u32 kInitial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

u32 big_endian(const u8* p) { return u32{p[0]} << 24 | u32{p[1]} << 16 | u32{p[2]} << 8 | p[3]; }

void compress_portable(u32 (&h)[8], const u8* p, std::size_t num_blocks) {
  for (; num_blocks > 0; --num_blocks, p += 64) {
    u32 w[64];
    for (int t = 0; t < 16; ++t) w[t] = big_endian(p + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const u32 s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
      const u32 s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    u32 v[8];
    std::memcpy(v, h, sizeof v);
    for (int t = 0; t < 64; ++t) {
      auto& [a, b, c, d, e, f, g, k] = v;
      const u32 t1 = k + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const u32 t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      k = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) h[i] += v[i];
  }
}

#if defined(__x86_64__)
// The instructions want the state as (A,B,E,F) and (C,D,G,H), and do four rounds a pair.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha_ni(u32 (&h)[8], const u8* p, std::size_t num_blocks) {
  const __m128i byte_swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h)), 0xb1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8);
  __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; num_blocks > 0; --num_blocks, p += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i)), byte_swap);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      const __m128i m = _mm_add_epi32(w[r & 3], _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + 4 * r)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, m);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(m, 0x0e));
      if (r >= 12) continue;
      const __m128i newest = w[(r + 3) & 3];
      const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[r & 3], w[(r + 1) & 3]), _mm_alignr_epi8(newest, w[(r + 2) & 3], 4));
      w[r & 3] = _mm_sha256msg2_epu32(sum, newest);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);
  high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h), _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h + 4), _mm_alignr_epi8(high, low, 8));
}

// GCC 12's __builtin_cpu_supports does not know "sha": CPUID leaf 7, EBX bit 29.
bool has_sha_ni() {
  u32 a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (b >> 29 & 1) != 0 && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}
#endif

using Compress = void (*)(u32 (&)[8], const u8*, std::size_t);

Compress pick_compress() {
#if defined(__x86_64__)
  if (has_sha_ni()) return compress_sha_ni;
#endif
  return compress_portable;
}

Compress chosen() {
  static const Compress compress = pick_compress();
  return compress;
}

}  // namespace

const char* sha256_name() { return chosen() == compress_portable ? "portable" : "sha-ni"; }

Digest sha256_short(const u8* message, std::size_t n) {
  assert(n <= 119);
  u8 padded[128] = {};
  std::memcpy(padded, message, n);
  padded[n] = 0x80;
  const std::size_t num_blocks = n <= 55 ? 1 : 2;
  const u64 bits = 8 * n;
  for (int i = 0; i < 8; ++i) padded[64 * num_blocks - 1 - i] = static_cast<u8>(bits >> 8 * i);
  u32 h[8];
  std::memcpy(h, kInitial, sizeof h);
  chosen()(h, padded, num_blocks);
  Digest digest;
  for (int i = 0; i < 32; ++i) digest[i] = static_cast<u8>(h[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

}  // namespace kvext
