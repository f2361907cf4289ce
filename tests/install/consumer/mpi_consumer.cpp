// The smallest MPI program with a session. The folder of its store is its argument.
#include <varve/error.h>
#include <varve/mpi.h>
#include <varve/session.h>

#include <cstdio>
#include <exception>

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  int result = 0;
  try {
    varve::SessionOptions options;
    if (argument_count > 1) options.store = arguments[1];
    auto session = varve::or_throw(
        varve::Session::open(varve::or_throw(varve::make_mpi_communicator(MPI_COMM_WORLD)), std::move(options)));
    double value = 1.5;
    varve::or_throw(session.protect("value", value));
    varve::or_throw(session.checkpoint(1, varve::Persistence::now));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    result = 1;
  }
  MPI_Finalize();
  return result;
}
