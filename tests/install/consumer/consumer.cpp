// The smallest program that uses the installed library.
#include <varve/status.h>

#include <cerrno>
#include <cstdio>

int main() {
  const varve::Status missing = varve::Status::from_errno(ENOENT, "open", "a checkpoint");
  std::puts(missing.to_string().c_str());
  return missing.code() == varve::StatusCode::not_found ? 0 : 1;
}
