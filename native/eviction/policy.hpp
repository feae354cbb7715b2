// What every policy has in common: a capacity, a size, and victims whenever the size exceeds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "access.hpp"

namespace kvext::eviction {

using Victims = std::vector<Key>;

class Policy {
 public:
  static constexpr std::int64_t latest_ms = std::int64_t{1} << 62;  // differences fit 64 bits

  explicit Policy(std::uint64_t capacity) : capacity_(capacity) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t size() const { return size_; }

  // Blocks of the longest cached prefix, as it was before; the rest is taken in.
  std::size_t access(const Access& access, Victims& victims) {
    if (access.now_ms < now_ms_ || access.now_ms > latest_ms)
      throw std::invalid_argument("now_ms is " + std::to_string(access.now_ms) +
                                  ", which is not between the last access's " +
                                  std::to_string(now_ms_) + " and 2 ** 62");
    now_ms_ = access.now_ms;
    return access.keys.empty() ? 0 : admit(access, victims);
  }

  void evict(std::uint64_t size, Victims& victims) {
    shrink(size < size_ ? size_ - size : 0, victims);
  }

  void resize(std::uint64_t capacity, Victims& victims) {
    set_capacity(capacity);
    shrink(limit(), victims);
  }

  // As `resize`, but leaves it to the caller to bring the size down.
  void set_capacity(std::uint64_t capacity) {
    capacity_ = capacity;
    trim_history();
  }

  // A follower names no victims at its capacity: it is told of another policy's by `retire`.
  void follow(bool follows) { follows_ = follows; }

  // The block has left the cache for reasons of its own: nothing is remembered of it.
  virtual void remove(Key key) = 0;
  // Another policy has evicted it.
  virtual void retire(Key key) { remove(key); }
  virtual bool contains(Key key) const = 0;

 protected:
  virtual std::size_t admit(const Access& access, Victims& victims) = 0;
  // Names victims until the size is at most `target` or nothing is left.
  virtual void shrink(std::uint64_t target, Victims& victims) = 0;
  // The capacity has changed: what is remembered of evicted blocks may have to go.
  virtual void trim_history() {}

  std::uint64_t limit() const { return follows_ ? UINT64_MAX : capacity_; }

  std::uint64_t times_capacity(std::uint64_t factor) const {
    return capacity_ > UINT64_MAX / factor ? UINT64_MAX : capacity_ * factor;
  }

  std::uint64_t capacity_;
  std::uint64_t size_ = 0;
  std::int64_t now_ms_ = 0;

 private:
  bool follows_ = false;
};

}  // namespace kvext::eviction
