// What a policy is told of one request. The Python form, with units: kvext/tenancy/policy.py.
#pragma once

#include <cstdint>
#include <span>

namespace kvext::eviction {

using Key = std::uint64_t;

enum class Session : std::uint8_t { unknown = 0, open = 1, closed = 2 };

struct Access {
  std::int64_t now_ms = 0;
  std::span<const Key> keys;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = -1;
  bool partial_tail = false;
  std::uint32_t block_size = 1;
  double first_cost_s = 0.0;
  double cost_step_s = 0.0;
  Session session = Session::unknown;
  std::int64_t return_ms = -1;
};

}  // namespace kvext::eviction
