// Who is alive, and who may change the tables. Both are open-file-description byte-range locks on the
// region's file: the kernel drops them at death, whatever the PID namespace. (A robust mutex compares
// thread ids and was seen to report a living owner of another namespace as dead.)
#pragma once
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

  // `holder` is anything but 0. Empty when the deadline passed.
  std::optional<Held> acquire(u64 holder, Seconds wait);

 private:
  void release(bool needs_recovery);
  Region& region_;
  ByteLock byte_;
  std::timed_mutex threads_;
};

// This process's row in the process table, from attach to detach.
class Membership {
 public:
  Membership(Region& region, u32 index) : region_(region), byte_(region.fd(), kProcessLockAt + index), index_(index) {}
  u32 index() const { return index_; }
  u64 epoch() const { return epoch_; }
  bool try_claim() { return byte_.try_lock(); }
  void enter(const std::string& label);
  void leave();
  void beat();
  // False once somebody fenced this process by changing its row's epoch.
  bool in_force() const;

 private:
  Region& region_;
  ByteLock byte_;
  u32 index_;
  u64 epoch_ = 0;
};

bool process_alive(const Region& region, u32 index);
u64 boottime_ms();

}  // namespace kvext
