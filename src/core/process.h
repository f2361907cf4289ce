#pragma once

#include <cstdint>
#include <string>

namespace varve {

/// Empty where the system does not say.
std::string host_name();

/// The number of the calling process on its machine.
uint32_t own_process_number();

/// Where a file really lies that only this machine sees, such as one below /dev/shm: simulated machines share one
/// system.
std::string path_on_machine(const std::string& path);

/// Whether no process of this machine has this number, for certain.
bool is_process_gone(uint32_t number);

}  // namespace varve
