// What a hazard model knows of a run of blocks at their last access: small numbers that name
// buckets, mostly powers of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "access.hpp"

namespace kvext::eviction {

enum Feature : std::uint8_t {
  count_f,        // accesses of the block, to 5
  turn_f,         // of the conversation
  prompt_f,       // blocks of the prompt
  output_f,       // tokens of the answer
  gap_f,          // since the conversation's last request
  children_f,     // blocks that ever followed this one: 0-1, 2-7, 8 and more
  tail_f,         // the block is partial
  new_blocks_f,   // of the prompt that nobody knew
  own_gap_f,      // since the block's last access
  previous_gap_f, // the gap before the gap
  position_f,     // in the prompt
  count_turn_f,
  prompt_output_f,
  new_prompt_f,
  session_f,      // what the application says, crossed with count; 0: it says nothing
  num_features
};

inline constexpr std::size_t num_buckets = 64;
using Features = std::array<std::uint8_t, num_features>;

// 0 for nothing, then 1, 2-3, 4-7, ...
inline std::uint8_t log_bucket(std::int64_t value, std::uint8_t most = 20) {
  if (value <= 0) return 0;
  return std::min<std::uint8_t>(most, std::bit_width(static_cast<std::uint64_t>(value)));
}

// 0 for unknown.
inline std::uint8_t gap_bucket(std::int64_t gap_ms) {
  return gap_ms < 0 ? 0 : 1 + log_bucket(gap_ms / 1000);
}

inline std::uint8_t children_bucket(std::uint32_t children) {
  return children < 2 ? 0 : children < 8 ? 1 : 2;
}

// Two buckets of eight in one.
inline std::uint8_t crossed(std::uint8_t a, std::uint8_t b) {
  return static_cast<std::uint8_t>(std::min<int>(a, 7) * 8 + std::min<int>(b, 7));
}

}  // namespace kvext::eviction
