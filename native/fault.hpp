// What the core throws. `kind` names the Python exception (kvext/pool/faults.py maps it).
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace kvext {

struct Fault : std::runtime_error {
  Fault(std::string kind_, const std::string& message) : std::runtime_error(message), kind(std::move(kind_)) {}
  std::string kind;
};

}  // namespace kvext
