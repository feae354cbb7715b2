// The most hits that any policy can have that knows the future: Belady with bypass.
//
// Each block's next access is known. The victim is the block whose next access is the furthest,
// the request's own blocks included; among equals the deeper one, since a prefix is of no use
// without its head.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "access.hpp"

namespace kvext::eviction {

// Requests lie one after the other in `keys`; request r has `lengths[r]` of them. Returns for each
// the blocks that are held: a prefix, unless keys stand in prompts without the order of prefixes.
inline std::vector<std::uint32_t> optimal_hits(std::span<const Key> keys,
                                               std::span<const std::uint32_t> lengths,
                                               std::uint64_t capacity) {
  constexpr std::uint32_t never = UINT32_MAX;
  std::vector<std::uint32_t> next(keys.size(), never);  // request of each block's next access
  std::unordered_map<Key, std::uint32_t> later;
  std::size_t end = keys.size();
  for (std::size_t r = lengths.size(); r-- > 0;) {
    const std::size_t begin = end - lengths[r];
    for (std::size_t i = begin; i < end; ++i) {
      const auto known = later.find(keys[i]);
      if (known != later.end()) next[i] = known->second;
    }
    for (std::size_t i = begin; i < end; ++i) later[keys[i]] = static_cast<std::uint32_t>(r);
    end = begin;
  }

  struct Held {
    std::uint32_t next;
    std::uint32_t depth;
    Key key;
    auto operator<=>(const Held&) const = default;
  };
  std::set<Held> held;
  std::unordered_map<Key, Held> by_key;
  std::vector<std::uint32_t> hits(lengths.size());
  for (std::size_t r = 0, begin = 0; r < lengths.size(); begin += lengths[r++]) {
    const auto prompt = keys.subspan(begin, lengths[r]);
    for (const Key key : prompt) hits[r] += by_key.contains(key);
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      const auto known = by_key.find(prompt[i]);
      if (known != by_key.end()) {
        held.erase(known->second);
        by_key.erase(known);
      }
      if (next[begin + i] == never) continue;
      const Held block{next[begin + i], static_cast<std::uint32_t>(i), prompt[i]};
      held.insert(block);
      by_key.emplace(prompt[i], block);
    }
    while (held.size() > capacity) {
      const auto furthest = std::prev(held.end());
      by_key.erase(furthest->key);
      held.erase(furthest);
    }
  }
  return hits;
}

}  // namespace kvext::eviction
