// Atomic access to words that several processes map. All of it is lock-free, hence address-free.
#pragma once
#include <atomic>

namespace kvext {

template <class T> T load_relaxed(const T& x) { return std::atomic_ref<T>(const_cast<T&>(x)).load(std::memory_order_relaxed); }
template <class T> T load_acquire(const T& x) { return std::atomic_ref<T>(const_cast<T&>(x)).load(std::memory_order_acquire); }
template <class T> T load_ordered(const T& x) { return std::atomic_ref<T>(const_cast<T&>(x)).load(std::memory_order_seq_cst); }
template <class T> void store_relaxed(T& x, T value) { std::atomic_ref<T>(x).store(value, std::memory_order_relaxed); }
template <class T> void store_release(T& x, T value) { std::atomic_ref<T>(x).store(value, std::memory_order_release); }
template <class T> T add_relaxed(T& x, T by) { return std::atomic_ref<T>(x).fetch_add(by, std::memory_order_relaxed); }
template <class T> T add_ordered(T& x, T by) { return std::atomic_ref<T>(x).fetch_add(by, std::memory_order_seq_cst); }
template <class T> bool swap_if(T& x, T expected, T desired) {
  return std::atomic_ref<T>(x).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
}

}  // namespace kvext
