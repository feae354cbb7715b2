#include "cores.hpp"

#include <sched.h>

#include <cstdlib>
#include <filesystem>

namespace kvext {
namespace {

cpu_set_t cores_of_process() {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error))
    if (::sched_getaffinity(std::atoi(task.path().filename().c_str()), sizeof one, &one) == 0) CPU_OR(&all, &all, &one);
  return all;
}

}  // namespace

void roam() {
  static const cpu_set_t cores = cores_of_process();
  if (CPU_COUNT(&cores) > 0) ::sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace kvext
