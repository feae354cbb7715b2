// Who is alive, and who may change the tables. Both are open-file-description byte-range locks on the
// region's file: the kernel drops them at death, whatever the PID namespace. (A robust mutex compares
// thread ids and was seen to report a living owner of another namespace as dead.)
#pragma once
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "region.hpp"

namespace kvext {

using Seconds = std::chrono::duration<double>;

// One byte of the region's file, held by this open file description.
class ByteLock {
 public:
  ByteLock(int fd, u64 at) : fd_(fd), at_(static_cast<long long>(at)) {}
  bool try_lock() const;
  void unlock() const;
  // Does another open file description hold it?
  bool held_elsewhere() const;

 private:
  int fd_;
  long long at_;
};

// Excludes other processes and other threads of this one; gives up at the deadline.
class AllocationLock {
 public:
  explicit AllocationLock(Region& region) : region_(region), byte_(region.fd(), kAllocationLockAt) {}

  class Held {
   public:
    Held(Held&& other) noexcept : needs_recovery(other.needs_recovery), lock_(other.lock_) { other.lock_ = nullptr; }
    Held& operator=(Held&&) = delete;
    ~Held() { if (lock_) lock_->release(needs_recovery); }
    // A holder died inside: the tables need recovery before anything else. Whoever lets go without
    // having repaired them leaves the mark for the next.
    bool needs_recovery = false;

   private:
    friend class AllocationLock;
    explicit Held(AllocationLock* lock) : lock_(lock) {}
    AllocationLock* lock_;
  };

  // `holder` is anything but 0. Empty when the deadline passed; after that, and until the lock is free
  // again, callers hardly wait: who holds it for so long has stopped.
  std::optional<Held> acquire(u64 holder, Seconds wait);

  // For who takes it again and again: between two times, others who wait must find it free once.
  static void give_others_a_turn();

 private:
  std::optional<Held> try_until(u64 holder, std::chrono::steady_clock::time_point deadline);
  void release(bool needs_recovery);
  Region& region_;
  ByteLock byte_;
  std::timed_mutex threads_;
  std::atomic<bool> is_stuck_{false};
};

// This process's row in the process table, from attach to detach. A reaper that takes it for dead or hung
// sets the row's epoch to 0: the process is fenced, and enters again under another epoch if it lives.
class Membership {
 public:
  Membership(Region& region, u32 index) : region_(region), byte_(region.fd(), kProcessLockAt + index), index_(index) {}
  u32 index() const { return index_; }
  u64 epoch() const { return epoch_.load(std::memory_order_relaxed); }
  bool try_claim() { return byte_.try_lock(); }
  void enter(const std::string& label);
  void leave();
  void beat();
  bool in_force() const;

 private:
  Region& region_;
  ByteLock byte_;
  u32 index_;
  std::atomic<u64> epoch_{0};
};

bool process_alive(const Region& region, u32 index);
u64 boottime_ms();
// How long a process may be silent, within bounds that make sense whatever the region says.
u64 lease_ms(const Region& region);

}  // namespace kvext
