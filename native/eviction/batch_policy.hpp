// The order of an access that LRU-2, ARC and S3-FIFO share: touch what is cached, make room for
// what is missing, take that in. Blocks of the request itself, which an engine would hold pinned,
// are victims only where nothing else is left.
#pragma once

#include <algorithm>

#include "policy.hpp"

namespace kvext::eviction {

class BatchPolicy : public Policy {
 public:
  using Policy::Policy;

 protected:
  std::size_t admit(const Access& access, Victims& victims) final {
    ++request_;
    std::size_t hits = access.keys.size();
    std::uint64_t missing = 0;
    for (std::size_t i = access.keys.size(); i-- > 0;) {
      depth_ = i;
      if (!touch(access.keys[i])) {
        hits = i;
        missing += access.block_size;
      }
    }
    while (size_ > 0 && missing > limit() - std::min(size_, limit()) &&
           evict(victims, request_)) {
    }
    for (std::size_t i = access.keys.size(); i-- > 0;) {
      depth_ = i;
      if (!contains(access.keys[i])) insert(access.keys[i], access.block_size);
    }
    while (size_ > limit() && evict(victims, request_)) {
    }
    // Nothing else is left: the tail goes, which would be of no use without its head.
    for (std::size_t i = access.keys.size(); size_ > limit() && i-- > 0;) {
      if (!contains(access.keys[i])) continue;
      victims.push_back(access.keys[i]);
      retire(access.keys[i]);
    }
    return hits;
  }

  void shrink(std::uint64_t target, Victims& victims) final {
    while (size_ > target && evict(victims, 0)) {
    }
  }

  // Notes the access if the block is cached; false if it is not.
  virtual bool touch(Key key) = 0;
  virtual void insert(Key key, std::uint32_t size) = 0;
  // Moves one block out of the cache that request `spared` did not touch; false if there is none.
  virtual bool evict(Victims& victims, std::uint64_t spared) = 0;

  std::uint64_t request_ = 0;  // counts from 1
  std::size_t depth_ = 0;      // where in the request the block stands that is touched or inserted
};

}  // namespace kvext::eviction
